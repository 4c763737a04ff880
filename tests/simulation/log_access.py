"""What the product's code reads of the simulated log: looks for changed slices, times for a warm-up, late records.

The product decides from that which slices are restated, from where a chain restarts, and what a repair takes.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, NamedTuple

import pytest

from jobs.engine.engine import Engine
from jobs.engine.fingerprints import spec_fingerprint
from jobs.engine.window_spec import engine
from jobs.lake import pinned_files
from jobs.lake.log_version import LogPlace, LogTip, commit_digest
from jobs.lake.restored_place import RestoredPlace
from jobs.ledger.looks import Look
from jobs.ledger.run_slots import RunBrief
from jobs.ledger.view import LedgerView, Request, StagedRun
from jobs.orchestration import late_repair, repair_range, restatements
from jobs.pipeline.log_schema import input_columns
from jobs.pipeline.models.pipeline import Pipeline
from jobs.planning import changed_slices, event_times, log_pin, log_state, published_spec, stored_spec
from jobs.planning.changed_slices import LogLook
from jobs.planning.request_context import RequestContext
from jobs.publishing import accepting
from jobs.publishing.chain_rules import lateness_ms
from jobs.reading.stored_tables import spec_of
from jobs.replay import restart
from jobs.replay.restart import SliceTime
from jobs.runs import Slice
from tests.simulation.event_log import NODES, URI
from tests.simulation.opened_log import LogSystem, OpenedLog, commit_files, opened_log
from tests.simulation.replays import CARRIED, LATE_MS, Counted
from tests.simulation.world import LAKE, SLICES, World
from windowlib.errors import RequestError
from windowlib.records.column_types import spell_type
from windowlib.watermarks.timeline import ALL_SOURCES, SourceRow

COLUMNS: Final = {name: spell_type(node) for name, node in NODES.items()}
OPEN_DIFFER: Final = "windows that are still open differ"
OPEN_IN, OPEN_IF = 6, 7
"""Windows with a late amount of 6 are still open after a slice whose amounts in time are a multiple of 7."""
STOPS_BEFORE_COMMIT = 0.05
"""The probability that others get their turn before a commit of the log is read."""
_WORLDS = count()
_ENGINES: dict[str, Engine] = {}  # by fingerprint of the spec


@dataclass(frozen=True)
class SimulatedPlace:
    """The place of the log. `number` is another one for each world: the product caches looks by the place."""

    world: World = field(repr=False)
    number: int = field(default_factory=lambda: next(_WORLDS))
    uri: str = URI

    def tip(self) -> LogTip:
        self.world.running().stop_here("look for the newest commit")
        files = commit_files(self.world.log, self.world.log.version, on_reading=self._before_commit)
        return LogTip(version=max(files.commits), commit=commit_digest(files, max(files.commits)), files=files)

    def open(self, version: int | None = None) -> OpenedLog:
        self.world.running().stop_here("open the log")
        return opened_log(self.world.log, version, on_listing=self._before_listing, on_reading=self._before_commit)

    def is_newest(self, version: int) -> bool:
        return version == self.world.log.version

    def _before_listing(self) -> None:
        self.world.running().stop_here("list the commits of the log")

    def _before_commit(self) -> None:
        if self.world.rng.random() < STOPS_BEFORE_COMMIT:
            self.world.running().stop_here("read a commit of the log")


class Times(NamedTuple):
    """The rows of table `watermarks` of some attempts, of which the product reads the slices."""

    slice_ids: Sequence[str]

    def to_pylist(self) -> Sequence[str]:
        return self.slice_ids


OnLook = Callable[[LedgerView, Look, Collection[str]], None]
"""Is called after each look, with the runs that it compares."""


def patch_log(world: World, patch: pytest.MonkeyPatch, on_look: OnLook) -> None:
    """Let the product's code read the log of a world."""
    place, looked = SimulatedPlace(world), changed_slices._looked

    def checked(work: RequestContext, view: LedgerView, tip: LogTip, *, seen: Mapping[str, RunBrief]) -> LogLook:
        looking = looked(work, view, tip, seen=seen)
        assert looking.look is not None, "there are runs to compare"
        on_look(view, looking.look, seen)
        return looking

    def at_place(_lake: object, pipeline: Pipeline) -> LogPlace:
        name = pipeline.log.history
        return place if name is None else RestoredPlace(place=place, history=name)

    for module in (accepting, changed_slices, log_pin, log_state, published_spec, repair_range, restart, stored_spec):
        patch.setattr(module, "log_place", at_place)
    for module in (log_state, pinned_files):
        patch.setattr(module, "file_system", lambda _uri: (LogSystem(world.log), URI))
    for module in (event_times, repair_range, restart):
        patch.setattr(module, "log_engine", _engine_of)
    patch.setattr(log_state, "tables_in_log", lambda _lake, _pipeline: None)
    patch.setattr(changed_slices, "_looked", checked)
    patch.setattr(restatements, "load_file", lambda _path: world.pipeline(world.spec))
    patch.setattr(restatements, "lake_of", lambda _root: LAKE)
    patch.setattr(restatements, "open_request_context", lambda _pipeline, _lake, **_clock: _context_of_running(world))
    _patch_repairs(world, patch)


def _context_of_running(world: World) -> RequestContext:
    return world.request_context(world.running(), world.spec)


def _patch_repairs(world: World, patch: pytest.MonkeyPatch) -> None:
    """Let the product's code find late records, and the times before a slice."""
    _patch_times(world, patch)

    def late_rows(_work: object, view: LedgerView, run: StagedRun, *, margin_ms: int) -> Iterator[Any]:
        del margin_ms
        world.running().stop_here("read late records")
        start_ms = run.result.slice.start_ms
        for amount in counted(run, lateness_ms(spec_of(view, run))).left:
            needed_ms = LATE_MS[amount]
            yield repair_range._LateRow(
                lateness_ms=needed_ms, event_time_ms=start_ms - needed_ms, key=("k",), missed=((0, 1),)
            )

    def counted(run: StagedRun, allowed_ms: int) -> Counted:
        result = run.result
        return Counted.of(world.log.contents[result.slice.slice_id, result.input_fingerprint], allowed_ms)

    def check_states(_work: object, repaired: StagedRun, own: StagedRun, *, request: Request) -> None:
        """Compare the windows that are open in the chain. Of some contents, those of the repair are others."""
        states = {CARRIED[run.checkpoint.fingerprint].windows for run in (repaired, own)}
        rows = counted(repaired, request_lateness_ms(request))
        if len(states) > 1 or (OPEN_IN in rows.late and rows.in_time and sum(rows.in_time) % OPEN_IF == 0):
            raise RequestError(f"{OPEN_DIFFER}. Request {request.request_id} is closed")

    def request_lateness_ms(request: Request) -> int:
        return lateness_ms(stored_spec.stored_pipeline(world.pipeline(world.spec), request))

    patch.setattr(repair_range, "_late_rows", late_rows)
    patch.setattr(late_repair, "_check_states", check_states)


def _patch_times(world: World, patch: pytest.MonkeyPatch) -> None:
    """Let the product's code find the times before a slice, from which a warm-up begins."""

    def read_attempts(_uri: object, attempts: Sequence[tuple[str, str]]) -> Mapping[str, Times]:
        world.running().stop_here("read watermarks")
        return {"slice_id": Times([slice_id for slice_id, _attempt in attempts])}

    def source_rows(rows: Mapping[str, Times]) -> list[SourceRow]:
        starts = {slice_.slice_id: slice_.start_ms for slice_ in SLICES}
        return [_time_after(starts[slice_id]) for slice_id in rows["slice_id"].to_pylist()]

    def times_of_log(_session: object, _work: object, before: Sequence[Slice], **_options: object) -> list[SliceTime]:
        world.running().stop_here("read the times of the log")
        return [
            SliceTime(slice=slice_, after=(_time_after(slice_.start_ms),), latest_ms=slice_.start_ms, groups=None)
            for slice_ in before
        ]

    patch.setattr(restart, "read_attempts", read_attempts)
    patch.setattr(restart, "source_rows", source_rows)
    patch.setattr(restart, "times_of_log", times_of_log)


def _time_after(start_ms: int) -> SourceRow:
    """Return the time after a slice: the watermark is that of `result_of`."""
    return SourceRow(ALL_SOURCES, start_ms, start_ms)


def _engine_of(pipeline: Pipeline, _log: object) -> Engine:
    spec = spec_fingerprint(pipeline)
    if spec not in _ENGINES:
        _ENGINES[spec] = engine(pipeline, input_columns(pipeline, COLUMNS))
    return _ENGINES[spec]
