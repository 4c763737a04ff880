"""Runs the suites of a pipeline over many slices: compiled checks in one pass, the rest with Great Expectations."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from expectations.confirming import Confirm, confirmed
from expectations.results import Answer, outcome
from expectations.suites import RUN, Check, Suite
from windowlib.libraries import np, pa, pd

if TYPE_CHECKING:
    import numpy.typing as npt

    from expectations.compiled.measures import Measure
    from expectations.outcomes import Outcome


_BETWEEN_VALUES = frozenset(
    {
        "expect_column_pair_values_a_to_be_greater_than_b",
        "expect_column_pair_values_to_be_equal",
        "expect_column_proportion_of_unique_values_to_be_between",
        "expect_column_unique_value_count_to_be_between",
        "expect_column_values_to_be_unique",
        "expect_compound_columns_to_be_unique",
        "expect_multicolumn_sum_to_equal",
        "expect_multicolumn_values_to_be_equal",
        "expect_select_column_values_to_be_unique_within_record",
    }
)
"""Checks that compare or add the values of a row or a column, so all digits of a decimal matter."""


class SlicedTable(Protocol):
    """A table with the rows of several slices."""

    @property
    def slice_count(self) -> int:
        """The number of slices. Slices are numbered from 0."""
        ...

    @property
    def schema(self) -> "pa.Schema": ...

    def batches(self, columns: Sequence[str]) -> "Iterator[tuple[npt.NDArray[np.int64], pa.RecordBatch]]":
        """Return the slice number of each row and the columns, batch by batch; the same at every call."""
        ...

    def frame(self, number: int, columns: Sequence[str], *, exact: bool = False) -> "pd.DataFrame":
        """Return the rows of one slice as a DataFrame, for Great Expectations; `exact` as in `to_pandas`."""
        ...


class SuiteChecks:
    """The checks of a suite over many slices. The compiled ones are computed when the object is made.

    If Great Expectations has checks to run, a thread has begun to import it then.
    """

    def __init__(self, suite: Suite, table: SlicedTable, *, confirm: Confirm = "none") -> None:
        """Compute the compiled checks of all slices in one pass."""
        self._suite, self._table = suite, table
        self._compiled = _compiled_outcomes(suite, table)
        self._asked = [_to_ask(suite, outcomes, confirm) for outcomes in self._compiled]
        if any(self._asked):
            from expectations.runner import begin_import

            begin_import()

    def outcomes(self) -> "list[list[Outcome]]":
        """Ask Great Expectations, slice by slice, and return the outcomes of every slice, in the order of the suite.

        An expectation that is not compiled for the types of its columns, or whose answer for a slice could differ from
        that of Great Expectations, has the outcome of Great Expectations. So has one that is confirmed; if its two
        results differ, its outcome has an exception.

        Raises:
            SpecError: Great Expectations does not accept the suite.
            InvariantBroken: Great Expectations returned no result for some checks.
        """
        every: list[list[Outcome]] = []
        for number, (outcomes, checks) in enumerate(zip(self._compiled, self._asked, strict=True)):
            asked = _ask(replace(self._suite, checks=checks), self._table, number) if checks else []
            own = outcomes | {
                result.index: confirmed(outcomes[result.index], result) if result.index in outcomes else result
                for result in asked
            }
            every.append([own[check.index] for check in self._suite.checks])
        return every


def check_slices(suite: Suite, table: SlicedTable, *, confirm: Confirm = "none") -> "list[list[Outcome]]":
    """Return the outcomes of every slice, as `SuiteChecks` describes."""
    return SuiteChecks(suite, table, confirm=confirm).outcomes()


def _compiled_outcomes(suite: Suite, table: SlicedTable) -> "list[dict[int, Outcome]]":
    """Return the outcomes of compiled checks by index, for each slice."""
    measures = _measures(suite, table)
    _feed(list(measures.values()), table, _read(suite, measures))
    only = _only_values(suite, table)
    every = []
    for number in range(table.slice_count):
        answers = {index: measure.answer(number) for index, measure in measures.items()}
        every.append(
            {
                check.index: outcome(check, _alone(check, answer, only[number]))
                for check in suite.checks
                if (answer := answers.get(check.index)) is not None
            }
        )
    return every


def _to_ask(suite: Suite, outcomes: "Mapping[int, Outcome]", confirm: Confirm) -> tuple[Check, ...]:
    """Return the checks of a slice that Great Expectations runs: those without an outcome, and those to confirm."""

    def is_asked(check: Check) -> bool:
        compiled = outcomes.get(check.index)
        if compiled is None or confirm == "all":
            return True
        return confirm == "failures" and not compiled.success

    return tuple(check for check in suite.checks if is_asked(check))


def needs_great_expectations(suite: Suite, schema: "pa.Schema") -> bool:
    """Return whether an expectation of the suite is not compiled for these columns."""
    from expectations.compiled.compiler import compile_check

    return any(compile_check(check, schema, 1) is None for check in suite.checks)


def _measures(suite: Suite, table: SlicedTable) -> "dict[int, Measure]":
    from expectations.compiled.compiler import compile_check

    tried = {check.index: compile_check(check, table.schema, table.slice_count) for check in suite.checks}
    return {index: measure for index, measure in tried.items() if measure is not None}


def _read(suite: Suite, measures: "Mapping[int, Measure]") -> list[str]:
    """Return the columns that the compiled checks read, in a fixed order."""
    return sorted({name for check in suite.checks if check.index in measures for name in check.read_columns})


def _feed(measures: "list[Measure]", table: SlicedTable, columns: Sequence[str]) -> None:
    from expectations.compiled.columns import Rows

    if not measures:
        return
    for slices, batch in table.batches(columns):
        rows = Rows(slices, batch)
        for measure in measures:
            measure.feed(rows)
    again = [measure for measure in measures if measure.needs_second_pass()]
    for slices, batch in table.batches(columns) if again else ():
        rows = Rows(slices, batch)
        for measure in again:
            measure.feed_again(rows)


def _only_values(suite: Suite, table: SlicedTable) -> list[Mapping[str, Any]]:
    """Return the values of each slice of the table `run`, which has one row per slice. Empty for other tables.

    Another table may have one row by chance, so its values are not kept.
    """
    values_of_slices: list[Mapping[str, Any]] = [{} for _ in range(table.slice_count)]
    if suite.table != RUN:
        return values_of_slices
    from expectations.compiled.columns import Column

    names = sorted({name for check in suite.checks for name in check.columns} & set(table.schema.names))
    for slices, batch in table.batches(names):
        everything = np.arange(batch.num_rows)
        columns = {name: Column(batch.column(name)).plain(everything) for name in names}
        for row, number in enumerate(slices.tolist()):
            values_of_slices[number] = {name: values[row] for name, values in columns.items()}
    return values_of_slices


def _alone(check: Check, answer: Answer, only: Mapping[str, Any]) -> Answer:
    if len(check.columns) != 1 or not only:
        return answer
    return replace(answer, alone=only.get(check.columns[0]))


def _ask(rest: Suite, table: SlicedTable, number: int) -> "list[Outcome]":
    """Run some checks of a slice with Great Expectations. Checks between decimals get all of their digits."""
    exact = tuple(check for check in rest.checks if check.type in _BETWEEN_VALUES and _has_decimals(check, table))
    others = tuple(check for check in rest.checks if check not in exact)
    asked = [
        (replace(rest, checks=checks), is_exact) for checks, is_exact in ((others, False), (exact, True)) if checks
    ]
    outcomes = [answer for suite, is_exact in asked for answer in _asked(suite, table, number, exact=is_exact)]
    return sorted(outcomes, key=lambda outcome: outcome.index)


def _asked(rest: Suite, table: SlicedTable, number: int, *, exact: bool) -> "list[Outcome]":
    from expectations.runner import validate

    names = table.schema.names
    read = rest.columns
    kept = names if read is None else [name for name in names if name in read] or names[:1]
    return validate(rest.table, table.frame(number, kept, exact=exact), rest)


def _has_decimals(check: Check, table: SlicedTable) -> bool:
    return any(pa.types.is_decimal(field.type) for field in table.schema if field.name in check.columns)
