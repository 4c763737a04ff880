"""Runs a suite over one table with Great Expectations, in memory and without files.

The first call imports Great Expectations, which takes seconds and 300 MB. After that, a suite of ten checks takes about
50 ms on pandas.

Fixed settings: an ephemeral context without stores (a store could fail to serialize a result), one thread at a time
(Great Expectations shares temporary views and a current context), no progress bars, no cached DataFrames, BASIC
results with at most 20 unexpected values, times in UTC.
"""

import functools
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from expectations.catalogue import AGGREGATES, PAIR_IGNORES
from expectations.json_values import MAX_ITEMS
from expectations.outcomes import Outcome
from expectations.results import Answer, outcome
from expectations.suites import RUN, Check, Suite
from windowlib.errors import InvariantBroken, SpecError
from windowlib.libraries import pd

if TYPE_CHECKING:
    import great_expectations as gx
    from great_expectations.core.batch_definition import BatchDefinition
    from great_expectations.core.expectation_validation_result import ExpectationValidationResult
    from great_expectations.datasource.fluent.interfaces import Batch

_INDEX = "hindcast_index"
_ROLE = "hindcast_role"
_CHECK, _COMPANION = "check", "companion"
_BOUNDS = frozenset({"min_value", "max_value"})
_SHOWN = (
    "observed_value", "element_count", "missing_count", "unexpected_count", "partial_unexpected_list",
    "partial_missing_list",
)  # fmt: skip
_RESULT_FORMAT = {"result_format": "BASIC", "partial_unexpected_count": MAX_ITEMS}
_ONE_AT_A_TIME = threading.Lock()


@functools.cache
def begin_import() -> threading.Thread:
    """Begin to import Great Expectations in a thread, so that the import overlaps with other work of the process.

    Only the import is in the thread. A check that needs Great Expectations waits for its end.
    """
    thread = threading.Thread(target=_import, name="import of great_expectations", daemon=True)
    thread.start()
    return thread


def _import() -> None:
    # If the import fails, the check that needs it imports again, and fails in the same way. All threads share the
    # filters of warnings, so another thread may turn a warning of the import into an error.
    with _ONE_AT_A_TIME, _quiet(), suppress(Exception):
        import great_expectations  # noqa: F401


def prepare(suite: Suite) -> None:
    """Import Great Expectations and build the suite, so that a replay fails before it starts if the suite is bad.

    Raises SpecError: Great Expectations does not accept the suite.
    """
    with _ONE_AT_A_TIME, _quiet():
        _build(suite.name, suite.checks)


def validate(table_name: str, frame: "pd.DataFrame", suite: Suite) -> list[Outcome]:
    """Return the outcome of every check of `suite` over `frame`.

    Without rows, a check of values passes with a note; only a check of the row count can fail then. With rows that are
    all null, a check of an aggregate (a mean, a sum) fails, because there is no value to compare. A check that raises
    an exception gives an outcome with `exception` and does not affect the other checks.

    Returns:
        One outcome per check, in the order of the suite.

    Raises:
        SpecError: Great Expectations does not accept the suite.
        InvariantBroken: Great Expectations returned no result for some checks.
    """
    with _ONE_AT_A_TIME, _quiet():
        frame = _with_times_in_utc(frame)
        answers = _ask(frame, suite)
        missing = [check.type for check in suite.checks if check.index not in answers]
        if missing:
            raise InvariantBroken(
                f"{table_name}: Great Expectations returned no result for {', '.join(missing)} of suite {suite.name}, "
                f"only {len(answers)} of {len(suite.checks)}; report this"
            )
        # The table `run` has one row by definition, so its values are kept. Other tables may have one row by chance.
        row = {str(name): frame[name].iloc[0] for name in frame} if suite.table == RUN and len(frame) == 1 else {}
        return [outcome(check, _answer_of(check, answers[check.index], row)) for check in suite.checks]


def _with_times_in_utc(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Give all times the zone UTC."""
    times = {str(name): frame[name].dt for name, kind in frame.dtypes.items() if kind.kind == "M"}
    zoned = {name for name in times if isinstance(frame.dtypes[name], pd.DatetimeTZDtype)}
    return frame.assign(
        **{name: time.tz_convert("UTC") if name in zoned else time.tz_localize("UTC") for name, time in times.items()}
    )


@dataclass(slots=True)
class _Answer:
    """Great Expectations' results for one check: its own result or exception, and the companion's result."""

    result: "ExpectationValidationResult | None" = None
    companion: "ExpectationValidationResult | None" = None
    exception: str | None = None

    def take(self, result: "ExpectationValidationResult") -> None:
        if _tags(result)[_ROLE] == _COMPANION:
            self.companion = result
        else:
            self.result = result
            self.exception = _exception(result)


def _tags(result: "ExpectationValidationResult") -> Mapping[str, Any]:
    config = result.expectation_config
    return (config.meta or {}) if config else {}


def _ask(frame: "pd.DataFrame", suite: Suite) -> Mapping[int, _Answer]:
    """Run all checks in one pass; if the pass raises, run each check alone, so that one cannot break the others."""
    batch = _batch_definition().get_batch(batch_parameters={"dataframe": frame})
    try:
        return _ask_together(batch, suite.name, suite.checks)
    except SpecError:
        raise
    except Exception:  # noqa: BLE001 -- any exception of Great Expectations must become a verdict
        return {check.index: _ask_alone(batch, suite.name, check) for check in suite.checks}


def _ask_together(batch: "Batch", name: str, checks: Sequence[Check]) -> dict[int, _Answer]:
    answers: dict[int, _Answer] = {}
    for result in batch.validate(_build(name, checks), result_format=_RESULT_FORMAT).results:
        answers.setdefault(int(_tags(result)[_INDEX]), _Answer()).take(result)
    return answers


def _ask_alone(batch: "Batch", name: str, check: Check) -> _Answer:
    try:
        return _ask_together(batch, name, [check])[check.index]
    except Exception as error:  # noqa: BLE001 -- as above; the text becomes the outcome's exception
        return _Answer(exception=f"{type(error).__name__}: {error}")


def _build(name: str, checks: Sequence[Check]) -> "gx.ExpectationSuite":
    """Return Great Expectations' own suite; refuse it if Great Expectations dropped an expectation."""
    import great_expectations as gx

    raw = [part for check in checks for part in _parts(check)]
    try:
        suite = gx.ExpectationSuite(name=name, expectations=raw)
    except Exception as error:
        raise SpecError(f"suite {name}: Great Expectations does not accept it: {error}") from error
    if len(suite.expectations) != len(raw) or not raw:
        kept = {(expectation.meta or {}).get(_INDEX) for expectation in suite.expectations}
        lost = ", ".join(f"{check.index} ({check.type})" for check in checks if check.index not in kept)
        raise SpecError(
            f"suite {name}: Great Expectations kept {len(suite.expectations)} of {len(raw)} expectations and dropped "
            f"{lost or 'all'}; a suite is run with all its expectations or not at all"
        )
    return suite


def _parts(check: Check) -> list[dict[str, Any]]:
    """Return the expectation, and for an aggregate a companion that counts its rows and nulls.

    Without the companion, a missing aggregate value could mean no rows or only nulls.
    """
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
    """Add UTC to a time: pandas would read it in the machine's zone."""
    return f"{bound}+00:00" if isinstance(bound, str) else bound


@functools.cache
def _batch_definition() -> "BatchDefinition[Any]":
    """Return the batch definition of a DataFrame; a process creates one context, data source and asset."""
    import great_expectations as gx
    from great_expectations.data_context.types.base import (
        DataContextConfig,
        InMemoryStoreBackendDefaults,
        ProgressBarsConfig,
    )

    # The default docs site is a directory below /tmp that Great Expectations never removes.
    config = DataContextConfig(store_backend_defaults=InMemoryStoreBackendDefaults(init_temp_docs_sites=False))
    context = gx.get_context(mode="ephemeral", project_config=config)
    context.variables.progress_bars = ProgressBarsConfig(globally=False, metric_calculations=False)
    source = context.data_sources.add_pandas("tables")
    return source.add_dataframe_asset("table").add_batch_definition_whole_dataframe("all")


@contextmanager
def _quiet() -> Iterator[None]:
    """Ignore warnings: Great Expectations and its dependencies warn about each other, and a user cannot act on it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _answer_of(check: Check, answer: _Answer, row: Mapping[str, Any]) -> Answer:
    details: Mapping[str, Any] = (answer.result.result or {}) if answer.result else {}
    judged = None
    if answer.companion is not None:
        counts = answer.companion.result or {}
        judged = int(counts.get("element_count") or 0), int(counts.get("unexpected_count") or 0)
    return Answer(
        success=answer.result is not None and bool(answer.result.success),
        details={name: details[name] for name in _SHOWN if name in details},
        exception=answer.exception,
        judged=judged,
        alone=row.get(check.columns[0]) if len(check.columns) == 1 else None,
    )


def _exception(result: "ExpectationValidationResult") -> str | None:
    """Return the exception of a check. Great Expectations has one record, or one per metric by the metric's name."""
    info: Mapping[str, Any] = result.exception_info or {}
    records = [record for record in (info, *info.values()) if isinstance(record, Mapping)]
    messages = [str(record.get("exception_message")).strip() for record in records if record.get("raised_exception")]
    return "; ".join(dict.fromkeys(messages)) or None
