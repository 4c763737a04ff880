"""Run a suite over one table with Great Expectations, in memory, leaving nothing behind.

The first call imports Great Expectations: 7 s and 300 MB. After that a suite of ten checks takes about 50 ms on pandas.

What is held constant here: an ephemeral context (no files, no store, so nothing a result holds can break one), one
thread at a time (Great Expectations shares temporary views and a current context), no progress bars, no cached
DataFrames, BASIC results with at most 20 unexpected values, NaN as null on both engines, times as UTC.
"""

import functools
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from expectations.catalogue import AGGREGATES, PAIR_IGNORES
from expectations.outcomes import Outcome
from expectations.suites import RUN, Check, Suite
from expectations.tables import Engine, Table, table_of
from expectations.values import MAX_ITEMS, json_safe, to_json
from windowlib.errors import InvariantBroken, SpecError

if TYPE_CHECKING:
    import great_expectations as gx
    import pandas as pd
    from great_expectations.core.batch_definition import BatchDefinition
    from great_expectations.core.expectation_validation_result import ExpectationValidationResult
    from great_expectations.datasource.fluent.interfaces import Batch
    from pyspark.sql import DataFrame

NOTE_NO_ROWS = "no rows, so nothing to check"
NOTE_NO_VALUE = "there are rows, but no value to judge"

_INDEX = "hindcast_index"
_ROLE = "hindcast_role"
_CHECK, _COMPANION = "check", "companion"
_BOUNDS = frozenset({"min_value", "max_value"})
_RESULT_FORMAT = {"result_format": "BASIC", "partial_unexpected_count": MAX_ITEMS}
_MAX_EXCEPTION = 500
_ONE_AT_A_TIME = threading.Lock()


def prepare(suite: Suite) -> None:
    """Import Great Expectations and build the suite, so that a replay learns of a bad suite before it starts.

    Raises:
        SpecError: Great Expectations does not take the suite.
    """
    with _ONE_AT_A_TIME, _quiet():
        _build(suite.name, suite.checks)


def validate(
    table_name: str, frame: "pd.DataFrame | DataFrame", suite: Suite, *, engine: Engine = "pandas"
) -> list[Outcome]:
    """Run every check of `suite` over `frame`.

    A check of values passes where there are no rows, with a note that says so: only a row count can judge emptiness.
    Where there are rows but only nulls, a check of an aggregate (a mean, a sum) fails: it has no value to judge.
    A check that breaks gives an outcome with `exception`; it spoils no other check.

    Args:
        table_name: for messages.
        frame: a pandas or a Spark DataFrame, according to `engine`; not changed, not cached.
        suite: what to check.
        engine: where to check. Both give the same verdicts (tests/expectations/test_engines_spark.py).

    Returns:
        One outcome per check, in the order of the suite.

    Raises:
        SpecError: Great Expectations does not take the suite.
        InvariantBroken: Great Expectations did not answer for every check.
    """
    with _ONE_AT_A_TIME, _quiet():
        table = table_of(frame, engine)
        answers = _ask(table, suite)
        missing = [check.type for check in suite.checks if check.index not in answers]
        if missing:
            raise InvariantBroken(
                f"{table_name}: Great Expectations gave no answer for {', '.join(missing)} of suite {suite.name}, "
                f"only {len(answers)} of {len(suite.checks)}; report this"
            )
        # Only the run's one row has values worth keeping; a table of one row is still a table.
        value_of = table.only_value if suite.table == RUN else None
        return [_outcome(check, answers[check.index], table, value_of=value_of) for check in suite.checks]


class _Answer:
    """What Great Expectations says about one check: its result or what broke, and the companion's result."""

    __slots__ = ("companion", "exception", "result")

    def __init__(self) -> None:
        self.result: ExpectationValidationResult | None = None
        self.companion: ExpectationValidationResult | None = None
        self.exception: str | None = None

    def take(self, result: "ExpectationValidationResult") -> None:
        """Keep a result in its role."""
        if _tags(result)[_ROLE] == _COMPANION:
            self.companion = result
        else:
            self.result = result
            self.exception = _exception(result)


def _tags(result: "ExpectationValidationResult") -> Mapping[str, Any]:
    config = result.expectation_config
    return (config.meta or {}) if config else {}


def _ask(table: Table, suite: Suite) -> Mapping[int, _Answer]:
    """All checks in one pass; where that breaks as a whole, each alone, so that one check cannot spoil the others."""
    batch = _batch_definition(table.engine).get_batch(batch_parameters={"dataframe": table.frame})
    try:
        return _ask_together(batch, suite.name, suite.checks)
    except SpecError:
        raise
    except Exception:  # noqa: BLE001 -- whatever breaks inside Great Expectations must become a verdict
        return {check.index: _ask_alone(batch, suite.name, check) for check in suite.checks}


def _ask_together(batch: "Batch", name: str, checks: Sequence[Check]) -> dict[int, _Answer]:
    answers: dict[int, _Answer] = {}
    for result in batch.validate(_build(name, checks), result_format=_RESULT_FORMAT).results:
        index = int(_tags(result)[_INDEX])
        answers.setdefault(index, _Answer()).take(result)
    return answers


def _ask_alone(batch: "Batch", name: str, check: Check) -> _Answer:
    try:
        return _ask_together(batch, name, [check])[check.index]
    except Exception as error:  # noqa: BLE001 -- as above; the text becomes the outcome's exception
        broken = _Answer()
        broken.exception = f"{type(error).__name__}: {error}"
        return broken


def _build(name: str, checks: Sequence[Check]) -> "gx.ExpectationSuite":
    """Make Great Expectations' own suite, and make sure that it dropped nothing."""
    import great_expectations as gx

    raw = [part for check in checks for part in _parts(check)]
    try:
        suite = gx.ExpectationSuite(name=name, expectations=raw)
    except Exception as error:
        raise SpecError(f"suite {name}: Great Expectations does not take it: {error}") from error
    if len(suite.expectations) != len(raw) or not raw:
        kept = {(one.meta or {}).get(_INDEX) for one in suite.expectations}
        lost = ", ".join(f"{check.index} ({check.type})" for check in checks if check.index not in kept)
        raise SpecError(
            f"suite {name}: Great Expectations kept {len(suite.expectations)} of {len(raw)} expectations and dropped "
            f"{lost or 'all'}; a suite must be run whole or not at all"
        )
    return suite


def _parts(check: Check) -> list[dict[str, Any]]:
    """The check, and for an aggregate a count of its rows and nulls, without which its silence cannot be read."""
    kwargs = {name: _in_utc(value) if name in _BOUNDS else value for name, value in check.kwargs.items()}
    if "column_A" in kwargs:
        kwargs.setdefault("ignore_row_if", PAIR_IGNORES)
    tags = {_INDEX: check.index, _ROLE: _CHECK}
    own = {"type": check.type, "kwargs": kwargs, "severity": check.severity, "meta": tags}
    if check.type not in AGGREGATES:
        return [own]
    same_rows = {name: check.kwargs[name] for name in ("column", "row_condition") if name in check.kwargs}
    companion = {"type": "expect_column_values_to_not_be_null", "kwargs": same_rows}
    return [own, {**companion, "meta": {_INDEX: check.index, _ROLE: _COMPANION}}]


def _in_utc(bound: object) -> object:
    """A time without its zone would be read in the zone of the machine by one engine, of the session by the other."""
    return f"{bound}+00:00" if isinstance(bound, str) else bound


@functools.cache
def _batch_definition(engine: Engine) -> "BatchDefinition[Any]":
    """One context, data source and asset per engine and process; a batch is then only a DataFrame handed in."""
    import great_expectations as gx
    from great_expectations.data_context.types.base import (
        DataContextConfig,
        InMemoryStoreBackendDefaults,
        ProgressBarsConfig,
    )

    # Without a docs site: the default one is a directory below /tmp that nobody removes.
    config = DataContextConfig(store_backend_defaults=InMemoryStoreBackendDefaults(init_temp_docs_sites=False))
    context = gx.get_context(mode="ephemeral", project_config=config)
    context.variables.progress_bars = ProgressBarsConfig(globally=False, metric_calculations=False)
    if engine == "pandas":
        return (
            context.data_sources.add_pandas("tables")
            .add_dataframe_asset("table")
            .add_batch_definition_whole_dataframe("all")
        )
    source = context.data_sources.add_spark("tables", persist=False)
    return source.add_dataframe_asset("table").add_batch_definition_whole_dataframe("all")


@contextmanager
def _quiet() -> Iterator[None]:
    """Great Expectations and its dependencies warn about each other; nothing there is for the user to act on."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _outcome(check: Check, answer: _Answer, table: Table, *, value_of: Callable[[str], Any] | None) -> Outcome:
    details: Mapping[str, Any] = (answer.result.result or {}) if answer.result else {}
    success = answer.exception is None and answer.result is not None and bool(answer.result.success)
    observed = _observed(details, table)
    if answer.exception is None and answer.companion is not None:
        success, observed = _judged_by_rows(success, observed, answer.companion.result or {})
    if value_of and "rows" in observed and len(check.columns) == 1:
        alone = value_of(check.columns[0])
        observed |= {} if alone is None else {"value": json_safe(alone)}
    return Outcome(
        index=check.index,
        check=check.type,
        columns=check.columns,
        severity=check.severity,
        success=success,
        exception=answer.exception[:_MAX_EXCEPTION] if answer.exception else None,
        observed=to_json(observed),
        arguments=check.arguments,
        unexpected_count=observed.get("unexpected"),
        element_count=observed.get("rows"),
        description=check.description,
    )


def _judged_by_rows(
    success: bool,  # noqa: FBT001 -- what it was until now, returned as what it is
    observed: dict[str, Any],
    companion: Mapping[str, Any],
) -> tuple[bool, dict[str, Any]]:
    """Read an aggregate beside the count of its rows: the engines disagree about aggregates of nothing (0, null)."""
    rows, nulls = int(companion.get("element_count") or 0), int(companion.get("unexpected_count") or 0)
    if rows == 0:
        return True, {"note": NOTE_NO_ROWS}
    if rows == nulls:
        return False, {"note": NOTE_NO_VALUE}
    return success, observed


def _exception(result: "ExpectationValidationResult") -> str | None:
    """What broke a check. Great Expectations gives one record, or one per metric under the metric's name."""
    info: Mapping[str, Any] = result.exception_info or {}
    records = [info] if "raised_exception" in info else [one for one in info.values() if isinstance(one, Mapping)]
    messages = [str(one.get("exception_message")).strip() for one in records if one.get("raised_exception")]
    return "; ".join(dict.fromkeys(messages)) or None


def _observed(details: Mapping[str, Any], table: Table) -> dict[str, Any]:
    """Great Expectations' result, in few words. An empty object where it observed nothing."""
    found: dict[str, Any] = {}
    value = json_safe(table.plain(details.get("observed_value")))
    if value is not None:
        found["values" if isinstance(value, list) else "value"] = value
    if details.get("element_count") is not None:
        rows, missing = int(details["element_count"]), int(details.get("missing_count") or 0)
        unexpected = int(details.get("unexpected_count") or 0)
        found |= {"unexpected": unexpected, "rows": rows, "missing": missing}
        found["share"] = unexpected / (rows - missing) if rows > missing else 0.0
    for name, items in (("sample", "partial_unexpected_list"), ("absent", "partial_missing_list")):
        plain = [json_safe(table.plain(item)) for item in details.get(items) or ()]
        distinct = {to_json(item): item for item in plain}
        if distinct:
            found[name] = [distinct[text] for text in sorted(distinct)]
    return found
