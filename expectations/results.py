"""The result of one check in the keys of Great Expectations' own results, and how it becomes an `Outcome`.

Great Expectations (`expectations.runner`) and the compiled checks (`expectations.compiled`) both return an `Answer`, so
one function decides what a verdict is and what an outcome shows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from expectations.catalogue import OF_NULLS
from expectations.json_values import json_safe, to_json
from expectations.outcomes import Outcome
from expectations.suites import Check

NOTE_NO_ROWS = "no rows, so nothing to check"
NOTE_NO_VALUE = "there are rows, but no value to judge"

_MAX_EXCEPTION = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one check found in one table.

    `details` is the `result` of Great Expectations: `observed_value`, or `element_count`, `missing_count`,
    `unexpected_count` and `partial_unexpected_list`. `judged` has the rows and the nulls that an aggregate read; it is
    None for other checks. `alone` is the value of a table of one row that an outcome shows, or None.
    """

    success: bool
    details: Mapping[str, Any] = field(default_factory=dict)
    exception: str | None = None
    judged: tuple[int, int] | None = None
    alone: Any = None


def outcome(check: Check, answer: Answer) -> Outcome:
    """Return the outcome of a check from its answer."""
    success = answer.exception is None and answer.success
    observed = _observed(answer.details)
    if answer.exception is None and answer.judged is not None:
        rows, nulls = answer.judged
        if rows == 0:
            success, observed = True, {"note": NOTE_NO_ROWS}
        elif rows == nulls and check.type != OF_NULLS:  # the engines differ: 0 or null
            success, observed = False, {"note": NOTE_NO_VALUE}
    if observed.get("rows") and answer.alone is not None:
        observed |= {"value": json_safe(answer.alone)}
    return Outcome(
        index=check.index,
        check=check.type,
        columns=check.columns,
        severity=check.severity,
        success=success,
        exception=answer.exception[:_MAX_EXCEPTION] if answer.exception else None,
        observed=to_json(observed),
        arguments=check.arguments,
        description=check.description,
    )


def _observed(details: Mapping[str, Any]) -> dict[str, Any]:
    """Return the details in the keys of `Outcome.observed`; empty if nothing was observed."""
    observed: dict[str, Any] = {}
    value = json_safe(details.get("observed_value"))
    if value is not None:
        observed["values" if isinstance(value, list) else "value"] = value
    if details.get("element_count") is not None:
        rows, missing = int(details["element_count"]), int(details.get("missing_count") or 0)
        unexpected = int(details.get("unexpected_count") or 0)
        observed |= {"unexpected": unexpected, "rows": rows, "missing": missing}
        observed["share"] = unexpected / (rows - missing) if rows > missing else 0.0
    for name, items in (("sample", "partial_unexpected_list"), ("absent", "partial_missing_list")):
        plain = [json_safe(item) for item in details.get(items) or ()]
        distinct = {to_json(item): item for item in plain}
        if distinct:
            observed[name] = [distinct[text] for text in sorted(distinct)]
    return observed
