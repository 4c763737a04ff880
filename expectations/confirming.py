"""Compares the result of a compiled check with that of Great Expectations, which is the one that counts."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from expectations import messages
from expectations.outcomes import Outcome

Confirm = Literal["failures", "all", "none"]
"""Which results of compiled checks Great Expectations confirms: those of checks that failed, all, or none."""

_EXACT = ("rows", "missing", "unexpected", "value")


def confirmed(compiled: Outcome, asked: Outcome) -> Outcome:
    """Return the result of Great Expectations, or an outcome with an `exception` that names both if they differ.

    Verdicts, counts and values that are not doubles are compared. A sum or mean of doubles may differ in its last
    digits.
    """
    if asked.exception is not None or _exact(compiled) == _exact(asked):
        return asked
    both = (
        f"the compiled check {_told(compiled)}, and Great Expectations {_told(asked)}; report this. "
        "`quality: {confirm: none}` in the pipeline file takes the result of the compiled check"
    )
    return replace(asked, success=False, exception=both)


def _exact(outcome: Outcome) -> Mapping[str, Any]:
    observed = json.loads(outcome.observed)
    exact = {name: observed[name] for name in _EXACT if name in observed and not isinstance(observed[name], float)}
    return exact | {"success": outcome.success}


def _told(outcome: Outcome) -> str:
    verdict = "passes" if outcome.success else "fails"
    column, observed, arguments = (
        ", ".join(outcome.columns) or None,
        *map(json.loads, (outcome.observed, outcome.arguments)),
    )
    return f"{verdict}, found {messages.finding(column, observed, check=outcome.check, arguments=arguments)}"
