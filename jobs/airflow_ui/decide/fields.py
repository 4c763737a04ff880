"""The fields of the forms of decisions, and the decision that they make.

A checkbox `slice` names a chosen slice. `run.<slice>` is the run that the page showed, `reason.<slice>` its reason.
"""

from collections.abc import Mapping
from typing import Any

from starlette.datastructures import FormData

from jobs.orchestration.decision_fields import Decision, read_decision
from windowlib.errors import RequestError

_NUMBERS = ("publication", "ledger_version")
_TEXTS = ("action", "request_id", "reason", "assignee")
_BESIDE = frozenset({*_TEXTS, *_NUMBERS, "slice", "place_run", "unpause", "mark"})
MAX_FIELDS = 3_000


def entered(form: FormData) -> dict[str, str]:
    """Return the fields of a form, to show them again. A chosen slice is `slice.<slice>`."""
    fields = {name: value for name, value in form.multi_items() if isinstance(value, str) and name != "slice"}
    return fields | {f"slice.{slice_id}": "on" for slice_id in form.getlist("slice") if isinstance(slice_id, str)}


def decision_of_form(form: FormData) -> Decision:
    """Return the decision that a form makes.

    Raises:
        RequestError: the form is not one of ours, or what was entered is not a decision.
    """
    unknown = [
        name
        for name, value in form.multi_items()
        if not isinstance(value, str) or (name not in _BESIDE and not name.startswith(("run.", "reason.")))
    ]
    if unknown:
        raise RequestError(f"the form has an unknown field {unknown[0]!r}")
    given: dict[str, Any] = {name: _text(form, name) for name in _TEXTS}
    given |= {name: _number(form, name) for name in _NUMBERS}
    given["slices"] = [
        {"slice_id": slice_id, "run_id": _text(form, f"run.{slice_id}"), "reason": _text(form, f"reason.{slice_id}")}
        for slice_id in form.getlist("slice")
        if isinstance(slice_id, str)
    ]
    if given["action"].startswith("waive") and not given["slices"]:
        raise RequestError("no slice is chosen; choose the failed slices that may pass, each with a reason")
    return read_decision(_without_own_reasons(given))


def _without_own_reasons(given: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: value.strip() if isinstance(value, str) else value for name, value in given.items()}


def _text(form: FormData, name: str) -> str:
    value = form.get(name, "")
    return value if isinstance(value, str) else ""


def _number(form: FormData, name: str) -> int | None:
    text = _text(form, name).strip()
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise RequestError(f"{name} is {text[:40]!r}, which is not a number") from None
