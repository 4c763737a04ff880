"""A flipped bit in a file that tasks exchange ends the attempt. The next attempt publishes the right result."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from jobs.orchestration.outcomes import RequestOutcome
from jobs.orchestration.requests import Staging, run_request
from jobs.planning.request_context import Asked
from jobs.replay.orders import ReplayOrder
from jobs.replay.replayer import replay_chunk
from jobs.replay.sizes import Sizes
from jobs.replay.stage_times import stage
from jobs.replay.stages import chunk_output, run_chunk
from jobs.replay.stages.state import divided_state
from jobs.runs import RunResult
from jobs.spark.lazy_session import LazySession
from jobs.spark.private_dir import private_directory
from tests.jobs.replay.stages.test_combine import DAY_MS, FIRST_MS, lake_with, make_log
from tests.support.flipped_bits import flip
from tests.support.fuzzing import seeds
from tests.support.replays import context_in, pipeline_of, what_was_run
from windowlib.errors import AuditError, SpecError

PIPELINE: Final = """
pipeline: damaged
log:
  table: log
  key: [k]
  event_time: {column: at, unit: ms}
  slice: {by: day}
watermark: WATERMARK
windows:
  tumbling: {size: 5h}
  allowed_lateness: 90m
aggregates: {n: {count: {}}, low: {min: v}, high: {max: v}}
"""
WATERMARKS: Final = ("{kind: bounded, out_of_orderness: 10m}", "{kind: column, column: at, unit: ms}")
"""The first needs no pass over time, so tasks also exchange partials. The second needs one."""
READ: Final = (
    ("time", "time"),
    ("windows", "records"),
    ("windows", "partials"),
    ("windows", "state"),
    ("windows", "steps"),
    ("encode", "rows"),
    ("encode", "invalid"),
)
"""The stages of a chunk that read files of earlier stages or of the driver, with the kinds of files."""
SLICES: Final = 2
SIZES: Final = Sizes(local_records=10**9, combined_records=0, combined_cells=1.0, rows_per_read=50, full_state_rows=0)


class Damage:
    """Flips one bit at one moment of one attempt, and keeps the error with which the attempt ended."""

    def __init__(self, random: Random, moment: str, kind: str, patch: pytest.MonkeyPatch) -> None:
        self._random, self._moment, self._kind = random, moment, kind
        self.file, self.error = "", ""
        self._earlier = {*self._files()}

        @contextmanager
        def with_damage(name: str) -> Iterator[None]:
            self._flip(name)
            with stage(name):
                yield

        def state_then_damage(*arguments: Any) -> Any:  # noqa: ANN401 - passed on unchanged
            state = divided_state(*arguments)
            self._flip("windows")
            return state

        patch.setattr(run_chunk, "stage", with_damage)
        patch.setattr(chunk_output, "stage", with_damage)
        patch.setattr(run_chunk, "divided_state", state_then_damage)

    def _files(self) -> list[Path]:
        return sorted((private_directory() / "shuffled").rglob(f"{self._kind}-*"))

    def _flip(self, moment: str) -> None:
        paths = [path for path in self._files() if path not in self._earlier]  # other tests of this process leave files
        if moment != self._moment or self.file or not paths:
            return
        path = self._random.choice(paths)
        flip(path, self._random.randrange(8 * path.stat().st_size))
        self.file = path.name

    def watched(self, replayer: Callable[[ReplayOrder], list[RunResult]], order: ReplayOrder) -> list[RunResult]:
        try:
            return replayer(order)
        except AuditError as error:
            self.error = str(error)
            raise


def replay(lake: Path, watermark: str, damage: Damage | None = None) -> RequestOutcome:
    pipeline = pipeline_of(PIPELINE.replace("WATERMARK", watermark))
    work = context_in(lake, pipeline)
    session = LazySession(lambda *_: pytest.fail("a small chunk started a session"), is_local=True)
    asked = Asked(from_ms=FIRST_MS, to_ms=FIRST_MS + SLICES * DAY_MS, who="a test", reason="")

    def replayer(order: ReplayOrder) -> list[RunResult]:
        return replay_chunk(session, order, sizes=SIZES)

    own = replayer if damage is None else partial(damage.watched, replayer)
    return run_request(work, asked, own, staging=Staging(chunk=1))


@pytest.mark.slow
def test_a_flipped_bit_of_a_file_that_tasks_exchange_ends_the_attempt(tmp_path: Path) -> None:
    """The files are those of local replays, between the stages that write and read them: their bits are all covered."""
    make_log(tmp_path / "log", Random(2), "ms")
    good = [what_was_run(replay(lake_with(tmp_path / f"good-{n}", tmp_path / "log"), WATERMARKS[n])) for n in (0, 1)]
    for seed in seeds(3 * len(READ)):
        random = Random(seed)
        moment, kind = READ[seed % len(READ)]
        place = {"time": 1, "partials": 0}.get(kind, random.randrange(2))
        lake = lake_with(tmp_path / str(seed), tmp_path / "log")
        with pytest.MonkeyPatch.context() as patch:
            damage = Damage(random, moment, kind, patch)
            outcome = replay(lake, WATERMARKS[place], damage)
        assert damage.file
        assert what_was_run(outcome) == good[place], f"a bit of {damage.file} changed the result"
        if kind != "rows":  # of a checkpoint, only one form is read
            assert damage.error
        assert damage.file in damage.error or not damage.error
        assert "\n" not in damage.error
        assert outcome.is_published


@pytest.mark.parametrize("place", ["jobs.replay.computed.full_checkpoints", "jobs.replay.replayer.prepare_checks"])
def test_an_error_between_the_stages_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Shuffle files contain records: no failure may leave them, neither after the windows nor before the writing."""

    def refuse(*_: object, **__: object) -> None:
        raise SpecError("refused")

    make_log(tmp_path / "log", Random(2), "ms")
    monkeypatch.setattr(place, refuse)
    before = {*(private_directory() / "shuffled").glob("*")}
    with pytest.raises(SpecError, match="refused"):
        replay(lake_with(tmp_path / "lake", tmp_path / "log"), WATERMARKS[0])
    assert {*(private_directory() / "shuffled").glob("*")} == before
