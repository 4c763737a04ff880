"""The probes of a proposal: a check whose result in every past slice becomes an expectation, or none.

A probe has the type of the expectation that it may become. So history is measured by the same code that will judge.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from expectations import arguments
from expectations.formatting import spell
from expectations.json_values import MAX_ITEMS, MAX_TEXT
from expectations.results import NOTE_NO_VALUE
from expectations.suites import LATE_RECORDS, RUN, WINDOW_OUTPUTS, Check
from jobs.review.suites.ranges import Kind, Past, Rule, limits
from windowlib.libraries import pa

if TYPE_CHECKING:
    from jobs.pipeline.models.pipeline import Pipeline

CRITICAL, WARNING = "critical", "warning"
MAX_VALUES = 12
"""A column with more different values than this is not a set."""
_MOSTLY_DIGITS = 6
_RESULT = {"type": "comparison", "column": {"name": "kind"}, "operator": "==", "parameter": "result"}
_HAS_ASSIGNED = {"type": "comparison", "column": {"name": "assigned"}, "operator": ">", "parameter": 0}
_NO_VALUE: Mapping[str, str | int] = {"text": "\ue000 none of the values", "whole": -(2**52) + 1}
"""A probe for the values of a column demands a value that no row has, so that it shows those that the rows have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The result of a probe in one slice: whether it passed, and what it observed (`Outcome.observed`)."""

    slice_id: str
    success: bool
    observed: Mapping[str, Any]


Expectations = list[dict[str, Any]]
Make = Callable[[Sequence[Seen], Rule], Expectations]


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A check to run in the past, and the function that makes expectations of its results."""

    table: str
    type: str
    kwargs: Mapping[str, Any]
    make: Make

    def check(self, index: int) -> Check:
        return Check(index=index, type=self.type, kwargs=self.kwargs)


def probes(pipeline: "Pipeline", schemas: "Mapping[str, pa.Schema]") -> list[Probe]:
    """Return the probes of a pipeline: of its runs, its windows and its late records.

    `schemas` has the stored columns of `window_outputs` and `late_records`.
    """
    outputs = schemas[WINDOW_OUTPUTS]
    made = [*_of_run(), *_of_windows(pipeline, outputs)]
    for key in pipeline.log.key_columns:
        kind = _kind_of(outputs, key)
        if kind in _NO_VALUE:
            made.append(_values(key, _NO_VALUE[kind]))
    for name in dict.fromkeys(("record_count", *pipeline.output_columns)):
        made += _of_output(name, _kind_of(outputs, name))
    late = "expect_column_max_to_be_between"
    whole = Kind(is_whole=True, least=0)
    return [*made, _ranged(LATE_RECORDS, late, "late_by_ms", values=whole, has_least=False)]


def _of_run() -> list[Probe]:
    between = "expect_column_values_to_be_between"
    share = Kind(least=0, most=1)
    return [
        _ranged(RUN, between, "records_read", values=Kind(is_whole=True, least=0)),
        *(
            _ranged(RUN, between, f"{fate}_share", values=share, has_least=False)
            for fate in ("invalid", "late", "unassigned")
        ),
        _ranged(RUN, between, "watermark_behind_by_ms", values=Kind(is_whole=True)),
        _always(RUN, "expect_column_values_to_not_be_null", {"column": "watermark_ms", "row_condition": _HAS_ASSIGNED}),
    ]


def _of_windows(pipeline: "Pipeline", outputs: "pa.Schema") -> list[Probe]:
    keys = pipeline.log.key_columns
    window = [*keys, "window_start", "window_end", "pane_index", "kind"]
    never_null = [name for name in (*keys, "window_start", "window_end") if name in outputs.names]
    counted: Probe = _ranged(
        WINDOW_OUTPUTS, "expect_table_row_count_to_be_between", None, values=Kind(is_whole=True, least=0)
    )
    return [
        *(_always(WINDOW_OUTPUTS, "expect_column_values_to_not_be_null", {"column": name}) for name in never_null),
        _always(
            WINDOW_OUTPUTS,
            "expect_column_pair_values_a_to_be_greater_than_b",
            {"column_A": "window_end", "column_B": "window_start"},
        ),
        _always(WINDOW_OUTPUTS, "expect_compound_columns_to_be_unique", {"column_list": window}),
        counted,
    ]


def _of_output(name: str, kind: str) -> list[Probe]:
    """Return the probes of an aggregate: nulls and, for a number, the least, the greatest and the mean of a slice."""
    nulls = Probe(
        table=WINDOW_OUTPUTS,
        type="expect_column_values_to_not_be_null",
        kwargs={"column": name, "row_condition": _RESULT},
        make=lambda seen, rule: _nulls(name, seen, rule),
    )
    if kind not in {"whole", "real"}:
        return [nulls]
    is_whole = kind == "whole"
    least = 1 if name == "record_count" else None
    return [
        nulls,
        *(
            _ranged(
                WINDOW_OUTPUTS,
                f"expect_column_{statistic}_to_be_between",
                name,
                values=Kind(is_whole=is_whole and statistic != "mean", least=least),
                row_condition=_RESULT,
            )
            for statistic in ("min", "max", "mean")
        ),
    ]


def _kind_of(schema: "pa.Schema", name: str) -> str:
    kind = schema.field(name).type if name in schema.names else pa.null()
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "text"
    is_real = pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return "whole" if pa.types.is_integer(kind) else "real" if is_real else "other"


def _always(table: str, kind: str, kwargs: Mapping[str, Any]) -> Probe:
    """Return a probe that becomes an expectation if it passed in every slice."""

    def make(seen: Sequence[Seen], _rule: Rule) -> Expectations:
        judged = [result for result in seen if "note" not in result.observed]
        if not judged or not all(result.success for result in seen):
            return []
        return [
            _expectation(
                kind,
                kwargs,
                severity=CRITICAL,
                description=f"So in all {len(seen):,} runs.",
                history={"runs": len(seen)},
            )
        ]

    return Probe(table=table, type=kind, kwargs=kwargs, make=make)


def _ranged(
    table: str, kind: str, column: str | None, *, values: Kind, has_least: bool = True,
    row_condition: Mapping[str, Any] | None = None,
) -> Probe:  # fmt: skip
    """Return a probe that becomes a range of the values that it observed.

    `has_least`: a value below all past ones is unusual, too.
    """
    base: dict[str, Any] = {} if column is None else {"column": column}
    if row_condition is not None:
        base["row_condition"] = row_condition

    def make(seen: Sequence[Seen], rule: Rule) -> Expectations:
        if any(result.observed.get("note") == NOTE_NO_VALUE for result in seen):
            return []
        past = _past(seen, "value")
        if past is None:
            return []
        wanted = {name: value for name, value in limits(past, rule, values).items() if has_least or name == "max_value"}
        if not wanted:
            return []
        facts = past.facts(rule)
        return [
            _expectation(
                kind, {**base, **wanted}, severity=WARNING, description=_in_words(facts, column), history=facts
            )
        ]

    # The limit of the probe does not matter: only its observation is used.
    return Probe(table=table, type=kind, kwargs={**base, "max_value": 0}, make=make)


def _values(key: str, no_value: str | int) -> Probe:
    def make(seen: Sequence[Seen], _rule: Rule) -> Expectations:
        sets = [frozenset(result.observed.get("sample", ())) for result in seen if "note" not in result.observed]
        known = frozenset().union(*sets)
        is_cut = any(len(values) >= MAX_ITEMS for values in sets)
        if is_cut or len(known) > MAX_VALUES or any(len(str(value)) >= MAX_TEXT for value in known):
            return []
        if arguments.values(sorted(known)) is not None:  # no values, or numbers that a suite cannot compare with
            return []
        history = {"runs": len(sets), "values": len(known)}
        expectations = [
            _expectation(
                "expect_column_values_to_be_in_set",
                {"column": key, "value_set": sorted(known)},
                severity=WARNING,
                description=f"{len(sets):,} runs had no other value.",
                history=history,
            )
        ]
        everywhere = sorted(frozenset.intersection(*sets))
        if everywhere:
            expectations.append(
                _expectation(
                    "expect_column_distinct_values_to_contain_set",
                    {"column": key, "value_set": everywhere},
                    severity=WARNING,
                    description=f"Each of {len(sets):,} runs had them.",
                    history=history,
                )
            )
        return expectations

    return Probe(
        table=WINDOW_OUTPUTS,
        type="expect_column_distinct_values_to_be_in_set",
        kwargs={"column": key, "value_set": [no_value]},
        make=make,
    )


def _nulls(column: str, seen: Sequence[Seen], rule: Rule) -> Expectations:
    """Return the least share of values that are not null. Without a null in history, none may be null."""
    past = _past([result for result in seen if result.observed.get("rows")], "share")
    if past is None:
        return []
    most = limits(past, rule, Kind(most=1)).get("max_value")
    if most is None:
        return []
    kwargs: dict[str, Any] = {"column": column, "row_condition": _RESULT}
    if most > 0:
        # Rounded down, so that no slice of the history fails by the last bit of a quotient.
        kwargs["mostly"] = math.floor((1 - most) * 10**_MOSTLY_DIGITS) / 10**_MOSTLY_DIGITS
        if kwargs["mostly"] <= 0:
            return []
    facts = past.facts(rule)
    said = f"Share of nulls: {_in_words(facts, 'null_share')}"
    return [
        _expectation("expect_column_values_to_not_be_null", kwargs, severity=WARNING, description=said, history=facts)
    ]


def _past(seen: Sequence[Seen], what: str) -> Past | None:
    observed = [(result.observed[what], result.slice_id) for result in seen if result.observed.get(what) is not None]
    if not observed or any(isinstance(value, str | bool) for value, _ in observed):
        return None
    values, slice_ids = zip(*observed, strict=True)
    return Past(values=values, slice_ids=slice_ids)


def _in_words(facts: Mapping[str, Any], column: str | None) -> str:
    least, median, most = (spell(facts[name], column) for name in ("min", "median", "max"))
    return f"{facts['runs']:,} runs had {least} to {most}, median {median}."


def _expectation(
    kind: str, kwargs: Mapping[str, Any], *, severity: str, description: str, history: Mapping[str, Any]
) -> dict[str, Any]:  # fmt: skip
    return {
        "type": kind,
        "kwargs": dict(kwargs),
        "severity": severity,
        "description": description,
        "meta": {"history": dict(history)},
    }
