"""A plan as a file: what a person has seen and accepted. A run of it refuses to do anything else."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from jobs.folding import spans
from jobs.lake.log_match import Match, compare_coordinates
from jobs.ledger.events import coordinates_of
from jobs.ledger.view import LedgerView
from jobs.new_file import write_new
from jobs.plain_text import counted, shortened
from jobs.planning.plan import Plan
from jobs.planning.steps import Reason
from jobs.regular_file import read_regular
from jobs.runs import WarmUp
from windowlib.errors import RequestError

_MOST_BYTES: Final = 200_000_000
"""A plan has about 500 bytes for each slice."""
_NAMED: Final = 5
"""An error names so many slices."""


class _Stored(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


class PlannedSlice(_Stored):
    """A slice of the plan. `reason` is a `jobs.planning.plan.Reason`, `log` the coordinates of its records."""

    slice_id: str
    reason: str
    certain: bool
    records: int
    bytes: int
    log: dict[str, Any]


class PlanFile(_Stored):
    """A plan that is stored.

    `published` is the ledger version of the newest publication, -1 without one; `checks` the fingerprint of the suites.
    """

    hindcast_plan: Literal[2] = 2
    pipeline: str
    from_ms: int
    to_ms: int
    fresh: bool
    spec_fingerprint: str
    checks: str | None
    published: int
    slices: tuple[PlannedSlice, ...]
    warm_up: WarmUp | None = None

    @classmethod
    def of(cls, planned: Plan, view: LedgerView) -> "PlanFile":
        """Return a plan that was just made for this view, as it is stored."""
        coordinates = planned.basis.log.coordinates
        return cls(
            pipeline=planned.pipeline,
            from_ms=planned.range[0].slice.start_ms,
            to_ms=planned.steps[-1].slice.end_ms,
            fresh=planned.basis.ask.is_fresh,
            spec_fingerprint=planned.spec_fingerprint,
            checks=planned.basis.ask.checks,
            published=_newest_publication(view),
            slices=tuple(
                PlannedSlice(
                    slice_id=step.slice.slice_id,
                    reason=step.reason.value,
                    certain=step.is_certain,
                    records=step.records,
                    bytes=step.bytes,
                    log=asdict(coordinates[step.slice.slice_id]) | {"file_digests": "", "log_digests": ""},
                )
                for step in planned.steps
            ),
            warm_up=planned.basis.ask.warm_up,
        )

    def store(self, path: Path) -> None:
        """Write the file, whole or not at all. A file that is there is replaced.

        Raises RequestError: the file cannot be written.
        """
        write_new(path, self.model_dump_json(indent=1) + "\n", replaces=True)

    @classmethod
    def load(cls, path: Path) -> "PlanFile":
        """Read a file that `store` has written. Raises RequestError: it cannot be read, or is no plan."""
        try:
            return cls.model_validate_json(read_regular(path, most=_MOST_BYTES))
        except OSError as error:
            raise RequestError(f"the plan {path} cannot be read: {error.strerror or error}") from error
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            if first["loc"] == ("hindcast_plan",) and isinstance(first["input"], int):
                raise RequestError(
                    f"{path} is a plan of format {first['input']}, which another version of Hindcast has written; this "
                    "one reads format 2. Make the plan again with `hindcast plan --out`"
                ) from error
            where = ".".join(map(str, first["loc"])) or "the file"
            raise RequestError(
                f"{path} is no plan that `hindcast plan --out` has written: {where}: {first['msg']}, "
                f"found {shortened(repr(first['input']))}"
            ) from error

    def check(self, view: LedgerView, planned: Plan) -> None:
        """Refuse a plan of now that is not the stored one. A log that grew behind the slices does not matter.

        Slices that have a valid run by now, of an earlier try of the same plan, need no replay.
        Raises RequestError: names all that has moved.
        """
        moved = [*self._moved(view, planned)]
        if moved:
            raise RequestError(
                f"the plan of pipeline {self.pipeline} is not valid any more: {'; '.join(moved)}. Nothing was done. "
                f"Make a new plan with `hindcast plan {self.pipeline} --from … --to … --out FILE`, and look at it"
            )

    def _moved(self, view: LedgerView, planned: Plan) -> Iterator[str]:
        basis = planned.basis
        if planned.spec_fingerprint != self.spec_fingerprint:
            yield f"the spec was {self.spec_fingerprint[:12]} and is {planned.spec_fingerprint[:12]} now"
        if basis.ask.checks != self.checks:
            yield "the suites of its checks are others now"
        newest = _newest_publication(view)
        if newest != self.published:
            yield (
                f"the published head was ledger version {self.published if self.published >= 0 else 'none'} and is "
                f"{newest} now"
            )
        if basis.ask.warm_up != self.warm_up:
            first = planned.range[0].slice.slice_id
            yield f"the log before slice {first}, or what is published of it, has changed, and with it the warm-up"
            return
        now = {step.slice.slice_id: step for step in planned.steps}
        stored = {step.slice_id: step for step in self.slices}
        if now.keys() != stored.keys():
            yield f"the range has {counted(len(now), 'slice')} now, and the plan has {len(stored)}"
            return
        other = [
            slice_id
            for slice_id, step in stored.items()
            if compare_coordinates(coordinates_of(step.log), basis.log.coordinates[slice_id]) is not Match.SAME
        ]
        if other:
            yield f"the log has other records, or perhaps other records, in {_named(other)}"
        added = [
            slice_id
            for slice_id, step in stored.items()
            if step.reason == Reason.CURRENT.value and now[slice_id].reason is not Reason.CURRENT
        ]
        if added and not other:
            yield f"the plan does not replay {_named(added)}, and a run would ({now[added[0]].reason.value})"


def _named(slice_ids: list[str]) -> str:
    what = "slice" if len(slice_ids) == 1 else "slices"
    return f"{what} {spans([[slice_id] for slice_id in slice_ids], _NAMED)}"


def _newest_publication(view: LedgerView) -> int:
    return view.publications[-1].seq if view.publications else -1
