"""The fields of a decision of a person, as the params of a DAG run of `decide_<pipeline>` give them."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from jobs.orchestration.decision_actions import MAX_REASON, Action
from jobs.pipeline.models.suggestions import did_you_mean
from jobs.plain_text import escaped, shortened
from jobs.publishing.comments import MAX_ASSIGNEE, Entry
from jobs.publishing.stop_reasons import listed
from jobs.publishing.waivers import SliceWaiver
from windowlib.errors import RequestError

MAX_SLICES = 5_000


_FIELDS: Final[Mapping[Action, tuple[frozenset[str], frozenset[str]]]] = {
    Action.PUBLISH: (frozenset({"request_id"}), frozenset({"reason"})),
    Action.WAIVE: (frozenset({"request_id", "slices"}), frozenset({"reason"})),
    Action.WAIVE_AND_PUBLISH: (frozenset({"request_id", "slices"}), frozenset({"reason"})),
    Action.CANCEL: (frozenset({"request_id", "reason"}), frozenset()),
    Action.ROLL_BACK: (frozenset({"publication", "reason"}), frozenset()),
    Action.RESUME: (frozenset({"reason"}), frozenset()),
    Action.COMMENT: (frozenset({"request_id", "reason"}), frozenset()),
    Action.ASSIGN: (frozenset({"request_id"}), frozenset({"reason", "assignee"})),
}
"""Action -> the fields that it needs, and those that it may have besides `ledger_version`."""

_Text = Annotated[str, Field(min_length=1, max_length=MAX_REASON)]


class ChosenSlice(BaseModel):
    """A failed slice that the person lets pass: the run that they looked at, and why. No reason: that of all slices."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    slice_id: _Text
    run_id: _Text
    reason: Annotated[str, Field(max_length=MAX_REASON)] = ""


class Decision(BaseModel):
    """A decision, as the params of a DAG run of `decide_<pipeline>` give it.

    Attributes:
        action: what is decided.
        request_id: the request. Needed by all actions but roll_back and resume.
        publication: the number of the publication to take back.
        slices: the failed slices that may pass.
        reason: why, or the text of a comment. For a waiver: the reason of all slices that have none of their own.
        assignee: who looks after the request from now on; None: nobody.
        ledger_version: the version of the ledger that the person looked at. The decision is refused if the request, its
            runs or their verdicts have changed since. None: it is not compared.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    action: Annotated[Action, Field(strict=False)]
    request_id: _Text | None = None
    publication: Annotated[int, Field(ge=1)] | None = None
    slices: Annotated[list[ChosenSlice], Field(max_length=MAX_SLICES)] = []
    reason: _Text | None = None
    assignee: Annotated[str, Field(max_length=MAX_ASSIGNEE)] | None = None
    ledger_version: Annotated[int, Field(ge=0)] | None = None

    @property
    def entry(self) -> Entry:
        assignee = (self.assignee or "") if self.action is Action.ASSIGN else None
        return Entry(text=self.reason or "", assignee=assignee)

    @property
    def waivers(self) -> tuple[SliceWaiver, ...]:
        return tuple(
            SliceWaiver(slice_id=entry.slice_id, run_id=entry.run_id, reason=entry.reason.strip() or self.reason or "")
            for entry in self.slices
        )

    def to_json(self) -> dict[str, Any]:
        """Return the decision as plain data, without empty fields; `read_decision` is the inverse."""
        return self.model_dump(mode="json", exclude_defaults=True)


def read_decision(given: Mapping[str, Any]) -> Decision:
    """Read a decision from params. Params that are None or empty count as not given.

    Raises RequestError: a key is unknown, a value is not valid, or the fields contradict each other.
    """
    filled = {name: value for name, value in given.items() if value not in (None, "", [], {})}
    unknown = sorted(filled.keys() - Decision.model_fields.keys())
    if unknown:
        raise RequestError(f"the decision has {_unknown(unknown)}; it may have {', '.join(Decision.model_fields)}")
    if "action" not in filled:
        raise RequestError(f"the decision has no action; choose one of {', '.join(action.value for action in Action)}")
    try:
        decision = Decision.model_validate(filled)
    except ValidationError as error:
        wrong = [
            f"{'.'.join(map(str, problem['loc']))}: {problem['msg']} (found {shortened(escaped(problem['input']), 80)})"
            for problem in error.errors(include_url=False)[:10]
        ]
        raise RequestError(f"the decision is not valid: {'; '.join(wrong)}") from error
    _check_fields(decision, given=frozenset(filled))
    return decision


def _check_fields(decision: Decision, *, given: frozenset[str]) -> None:
    needs, may = _FIELDS[decision.action]
    name = decision.action.value
    missing = sorted(needs - given)
    if missing:
        raise RequestError(f"the action {name} needs {' and '.join(missing)}")
    excess = sorted(given - needs - may - {"action", "ledger_version"})
    if excess:
        raise RequestError(f"the action {name} does not take {' and '.join(excess)}")
    if decision.reason is not None and not decision.reason.strip():
        raise RequestError("the reason is blank; the ledger stores it with your name")
    blank = [waiver.slice_id for waiver in decision.waivers if not waiver.reason.strip()]
    if blank:
        raise RequestError(f"{listed(blank)}: no reason. Write why the slice may pass; the ledger stores it")


def _unknown(names: Sequence[str]) -> str:
    keys = (
        f"an unknown key {escaped(shortened(name, 60))!r}{did_you_mean(name, Decision.model_fields)}" for name in names
    )
    return ", ".join(keys)
