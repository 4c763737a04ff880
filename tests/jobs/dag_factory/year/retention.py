"""What retention must keep and what the weekly clean-up must remove, in a simulated year."""

from dataclasses import dataclass, field
from typing import Final

import pytest
from deltalake import DeltaTable

from jobs.ledger.view import LedgerView, Request
from jobs.planning.request_context import covers
from jobs.replay.orders import ReplayOrder
from jobs.runs import Slice
from tests.jobs.dag_factory.year.calendar import DAY_MS
from tests.jobs.dag_factory.year.checks import Seen, seen
from tests.jobs.dag_factory.year.edited_file import SUPERSEDED_DAYS, UNPUBLISHED_DAYS
from tests.jobs.dag_factory.year.world import World
from windowlib.errors import HindcastError

SAMPLES: Final = 2
"""So many past views are read at each noon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastView:
    """What readers saw at a version of the ledger. `runs` are the runs with rows."""

    version: int
    values: Seen
    runs: frozenset[str]


@dataclass
class Kept:
    """What must be stored. All times are those of Airflow's clock.

    `gone_ms` maps runs that readers have seen to the time since when they do not see them. `removed` are the runs that
    a clean-up had to remove. `written` maps (slice, attempt) to the time and the slice. `places` maps runs to the slice
    and the attempt of their rows, `with_rows` are the runs that read records.
    """

    gone_ms: dict[str, int] = field(default_factory=dict)
    visible: frozenset[str] = frozenset()
    ever_seen: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)
    written: dict[tuple[str, str], tuple[int, Slice]] = field(default_factory=dict)
    places: dict[str, tuple[str, str]] = field(default_factory=dict)
    with_rows: set[str] = field(default_factory=set)
    past: list[PastView] = field(default_factory=list)
    cleanings: int = 0
    refused: int = 0
    needed: frozenset[str] = frozenset()
    """The slices of the requests that were open at the observation before."""

    def note_order(self, order: ReplayOrder, now_ms: int) -> None:
        """Note the attempts that a replay writes."""
        for slice_ in order.slices:
            self.written[slice_.slice_id, order.attempt_id] = (now_ms, slice_)

    def observe(self, world: World, view: LedgerView, where: str) -> None:
        """Note what readers do not see any more, and check the newest clean-up."""
        now_ms = world.airflow.clock.ms
        visible = frozenset(view.published.values())
        self.gone_ms |= dict.fromkeys(self.visible - visible, now_ms)
        for run_id in visible:
            self.gone_ms.pop(run_id, None)
        self.removed -= visible
        self.visible = visible
        self.ever_seen |= visible
        self.places |= {id_: (run.result.slice.slice_id, run.result.attempt_id) for id_, run in view.runs.items()}
        self.with_rows |= {run_id for run_id, run in view.runs.items() if run.result.counts.read}
        cleanings = [run for run in world.airflow.runs if run.dag_id == "maintain_sales" and run.state == "success"]
        if len(cleanings) > self.cleanings:
            self.cleanings = len(cleanings)
            self._check_clean(world, view, where)
        self.needed = _needed(view)

    def _check_clean(self, world: World, view: LedgerView, where: str) -> None:
        now_ms = world.airflow.clock.ms
        needed = _needed(view)
        over = [run_id for run_id, since_ms in self.gone_ms.items() if now_ms - since_ms >= SUPERSEDED_DAYS * DAY_MS]
        stored, places = _stored(world), self.places
        # A request may have been open at the clean-up, and have been published since.
        perhaps = {run_id for run_id in over if places[run_id][0] not in needed}
        self.removed |= {
            run_id for run_id in perhaps if places[run_id][0] not in self.needed or places[run_id] not in stored
        }
        left = {run_id for run_id in self.removed if places[run_id] in stored}
        assert not left, f"{where}: rows of {left} are stored beyond the retention"
        kept = (self.visible | self.gone_ms.keys() - set(over)) & self.with_rows
        lost = {run_id for run_id in kept - self.removed if places[run_id] not in stored}
        assert not lost, f"{where}: rows of {lost} are gone within the retention"
        of_checks = {(run.result.slice.slice_id, run.checks_attempt_id) for run in view.runs.values()}
        seen_places = {places[run_id] for run_id in self.ever_seen} | of_checks
        unpublished = {
            place
            for place, (written_ms, slice_) in self.written.items()
            if place not in seen_places
            and slice_.slice_id not in needed | self.needed
            and now_ms - written_ms >= UNPUBLISHED_DAYS * DAY_MS
        }
        assert not unpublished & stored, f"{where}: {unpublished & stored} were never published, and are stored"

    def look_back(self, world: World, values: Seen, where: str) -> None:
        """Read some past views, each equal to what readers saw then, or refused because a clean-up has removed it."""
        view = world.view()
        for past in world.chance.sample(self.past, min(SAMPLES, len(self.past))):
            if past.runs & self.removed:
                with pytest.raises(HindcastError, match="were removed by a clean-up"):
                    seen(world, at=past.version)
                self.refused += 1
            else:
                assert seen(world, at=past.version) == past.values, f"{where}: as of ledger version {past.version}"
        if view.published:
            self.past.append(PastView(version=view.version, values=values, runs=self.visible & self.with_rows))


def _needed(view: LedgerView) -> frozenset[str]:
    return frozenset(slice_ for request in view.open_requests() for slice_ in _slices(view, request))


def _slices(view: LedgerView, request: Request) -> list[str]:
    return [slice_id for slice_id, slice_ in view.slices.items() if covers(request, slice_)] + [*request.slice_ids]


def _stored(world: World) -> set[tuple[str, str]]:
    """Return the (slice, attempt) whose windows are stored."""
    place = world.airflow.lake.table("sales", "window_outputs")
    parts = DeltaTable(place).partitions() if DeltaTable.is_deltatable(place) else ()
    return {(part["slice_id"], part["attempt_id"]) for part in parts}
