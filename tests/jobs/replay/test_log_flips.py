"""Law L9: a flipped bit in any file of the log that a run has read is found, or changes nothing. Without Spark."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from jobs.cli.main import hindcast
from jobs.cli.options import run_cli
from jobs.lake.lake import Lake
from jobs.ledger.seen_log import known_log
from jobs.ledger.view import LedgerView
from jobs.orchestration.plan_outline import outline
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import parse_bound, slices_between
from jobs.planning.log_pin import pin_input
from jobs.planning.request_context import RequestContext
from jobs.planning.steps import Ask, Reason
from jobs.reading.verified_log import LogVerification, verify_log
from jobs.reading.verify import Span
from jobs.replay.chunk.log_bytes import check_log_bytes
from jobs.replay.sizes import Sizes
from jobs.replay.tasks import LocalTasks
from jobs.review.explain import explain
from tests.support.delta_logs import clean_commits
from tests.support.flips import Read, flipped, sweep
from tests.support.fuzzing import cases
from tests.support.log_files import COVERS, FIRST_DAY, PIPELINE, Cover, write_log
from tests.support.no_spark import threads
from tests.support.replays import computed_of, context_in, order_of, pipeline_of, run_range
from windowlib.errors import LogError

SIZES = Sizes(local_records=10**9)
DAYS = (str(FIRST_DAY), "2026-01-06")
BOUNDS = (DAYS[0], "2026-01-07")


SESSION = threads()


@dataclass(frozen=True)
class Replayed:
    """A published lake over a log, and its ledger when it was published."""

    lake: Lake
    pipeline: Pipeline
    view: LedgerView

    @property
    def log(self) -> Path:
        return Path(self.lake.root) / "log"

    @property
    def work(self) -> RequestContext:
        return context_in(self.lake.root, self.pipeline)

    @property
    def data_files(self) -> list[Path]:
        return sorted(self.log.glob("*/*.parquet"))

    def ask(self) -> Ask:
        return Ask(slices=tuple(slices_between(self.pipeline, *(parse_bound(self.pipeline, one) for one in BOUNDS))))

    def read(self) -> object:
        """What the next replay of these slices would compute: it knows what the ledger has of the log."""
        order = order_of(self.lake.root, self.pipeline, BOUNDS)
        return computed_of(SESSION, replace(order, known_log=known_log(self.view, order.slices)))

    def explained(self) -> object:
        """The fate of a record that no side table has: it is looked for in all files of the log."""
        return explain(self.lake, self.pipeline, self.assigned, view=self.view).to_json()

    @cached_property
    def assigned(self) -> str:
        """The last record that is in windows."""
        names = (f"record-{number}" for number in range(159, -1, -1))
        return next(
            name for name in names if explain(self.lake, self.pipeline, name, view=self.view).fate == "assigned"
        )

    def verified(self) -> LogVerification:
        return verify_log(self.lake, self.pipeline, self.view, span=Span())

    def planned(self) -> list[Reason]:
        return [step.reason for step in self.work.plan(self.view, self.ask()).steps]


def run(lake: Lake, pipeline: Pipeline) -> LedgerView:
    assert run_range(None, lake.root, pipeline, BOUNDS, sizes=SIZES).is_published
    return context_in(lake.root, pipeline).ledger.view()


def replayed(root: Path, *, cover: Cover) -> Replayed:
    write_log(root / "log", Random(1), cover=cover)
    pipeline, lake = pipeline_of(PIPELINE), Lake(root=str(root))
    return Replayed(lake=lake, pipeline=pipeline, view=run(lake, pipeline))


@pytest.mark.slow
@pytest.mark.parametrize("cover", COVERS)
def test_no_flip_in_a_log_changes_a_replay(tmp_path: Path, cover: Cover) -> None:
    """Defect: of 20 flips in a file that Spark wrote, 15 changed the published rows without an error."""
    lake = replayed(tmp_path, cover=cover)
    counts = sweep({lake.log: Read(lake.read)}, flips=cases(150, among=3))
    assert counts["found"] >= 100, counts


@pytest.mark.slow
@pytest.mark.parametrize("cover", COVERS)
@pytest.mark.parametrize("reader", [Replayed.explained, Replayed.planned])
def test_no_flip_in_a_log_changes_what_is_explained_or_planned(
    tmp_path: Path, cover: Cover, reader: Callable[[Replayed], object]
) -> None:
    """A flip in the statistics of a file hid a record from `explain`. A plan reads `_delta_log` only."""
    lake = replayed(tmp_path, cover=cover)
    place = lake.log if reader is Replayed.explained else lake.log / "_delta_log"
    assert lake.assigned
    # A flip in the id of the table makes it another table: the plan proposes to replay all slices.
    counts = sweep({place: Read(lambda: reader(lake), tells=_proposes_all)}, flips=cases(30, among=6))
    assert counts["found"] >= 10, counts


def _proposes_all(result: object) -> bool:
    return isinstance(result, list) and Reason.CURRENT not in result


@pytest.mark.parametrize("cover", COVERS)
def test_verify_finds_each_flip_of_a_data_file(tmp_path: Path, cover: Cover) -> None:
    """A file with page checksums only may have harmless flips: in the headers of its pages."""
    lake = replayed(tmp_path, cover=cover)
    assert (lake.verified().files, lake.verified().unknown, lake.verified().findings) == (4, 0, ())
    random = Random(1)
    found = 0
    for _ in range(50):
        path = random.choice(lake.data_files)
        with flipped(path, random.randrange(path.stat().st_size * 8)):
            findings = lake.verified().findings
            assert all(
                path.name in one.what and DAYS[path.parent.name.endswith(DAYS[1])] in one.what for one in findings
            )
            found += len(findings)
    assert found == 50 if cover != "page checksums" else found > 30


@pytest.mark.slow
def test_a_file_without_checksums_is_compared_by_every_later_reading(tmp_path: Path) -> None:
    """Also by a chunk of another spec. The error names log, slice and file, and the way on."""
    lake = replayed(tmp_path, cover="nothing")
    [path] = [one for one in lake.data_files if lake.assigned in pq.ParquetFile(one).read()["id"].to_pylist()]
    other = replace(lake, pipeline=pipeline_of(PIPELINE.replace("size: 12h", "size: 6h")))
    with flipped(path, 8 * 500):
        for reader in (lake.read, other.read, lake.explained):
            with pytest.raises(LogError, match="is not the file that an earlier run has read") as refused:
                reader()
            for part in (
                path.name,
                f"slice {path.parent.name.removeprefix('day=')}",
                str(lake.log),
                "Restore it",
                "write its records into a new",
            ):
                assert part in str(refused.value)
        assert lake.planned() == [Reason.CURRENT] * 2  # a plan reads no data file
    assert run(lake.lake, other.pipeline).published != lake.view.published


def test_a_compacted_slice_has_nothing_to_compare(tmp_path: Path) -> None:
    """The files have new names: neither a replay nor a plan refuses them, and `verify` counts them."""
    lake = replayed(tmp_path, cover="nothing")
    before = lake.read()
    for commit in (lake.log / "_delta_log").glob("*.json"):  # deltalake writes no table with row tracking
        lines = [json.loads(line) for line in commit.read_text(encoding="utf-8").splitlines()]
        for entry in lines:
            if "add" in entry:
                old = lake.log / entry["add"]["path"]
                old.rename(old.with_name(f"new-{old.name}"))
                entry["add"]["path"] = entry["add"]["path"].replace("part-", "new-part-")
        text = "\n".join(json.dumps(line) for line in lines)
        commit.write_text(text, encoding="utf-8")
    without = tuple(
        replace(one, sightings=tuple(replace(seen, log=replace(seen.log, log_digests="")) for seen in one.sightings))
        for one in lake.view.runs.values()
    )
    new = replace(lake, view=replace(lake.view, runs={one.result.run_id: one for one in without}))
    assert new.read() == before
    found = new.verified()
    assert (found.files, found.unknown, found.findings) == (0, 4, ())
    assert str(found) == "no file of the log was compared, 4 files have no checksum and no stored digest"


@pytest.mark.parametrize("cover", COVERS)
def test_a_plan_and_a_run_say_once_that_the_writer_protects_nothing(
    tmp_path: Path, cover: Cover, caplog: pytest.LogCaptureFixture
) -> None:
    lake = replayed(tmp_path, cover=cover)
    said = [one for one in caplog.messages if "stores no checksums" in one]
    planned = lake.work.plan(lake.view, lake.ask())
    assert len(said) == len(planned.warnings) == (cover == "nothing")
    assert [*planned.warnings] == said == planned.to_json()["warnings"]
    assert sum("stores no checksums" in line for line in outline(planned)) == len(said)


@pytest.mark.slow
def test_what_the_ledger_stores_of_files(tmp_path: Path) -> None:
    """Nothing of data with a checksum file, else 20 characters a file; of `_delta_log` always, in one slice, once."""
    for cover in COVERS:
        lake = replayed(tmp_path / cover, cover=cover)
        logs = [run.result.log for run in lake.view.runs.values()]
        size = 0 if cover == "checksum files" else 40
        assert [len(one.file_digests) for one in logs] == [size, size]
        assert [len(one.log_digests) for one in logs] == [80, 0]
        other = run(lake.lake, pipeline_of(PIPELINE.replace("size: 12h", "size: 6h")))
        later = [one.result.log for one in other.runs.values() if one.result.run_id not in lake.view.runs]
        assert [(len(one.file_digests), len(one.log_digests)) for one in later] == [(size, 0), (size, 0)]


def test_the_command_counts_the_files_of_the_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = replayed(tmp_path, cover="checksum files")
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "covered.yaml").write_text(PIPELINE)
    command = ["verify", "covered", "--lake", str(tmp_path), "--pipelines", str(tmp_path / "pipelines")]
    assert run_cli(hindcast, command) == 0
    assert "4 files of the log were compared with their checksums or digests: everything" in capsys.readouterr().out
    path = lake.data_files[0]
    with flipped(path.with_name(f".{path.name}.crc"), 8 * 8):
        assert run_cli(hindcast, [*command, "--json"]) == 1
    printed = json.loads(capsys.readouterr().out)
    assert (printed["log_files"], [one["slice_id"] for one in printed["findings"]]) == (4, [DAYS[0]])
    (lake.log / "_delta_log").rename(tmp_path / "elsewhere")
    assert run_cli(hindcast, command) == 1
    assert "is not a Delta table" in capsys.readouterr().out


@dataclass(frozen=True)
class _Counting(LocalTasks):
    """Tasks that remember how many there were."""

    tasks: list[int] = field(default_factory=list)

    def run(self, function: Callable[[Any], Any], arguments: Sequence[Any]) -> list[Any]:
        self.tasks.append(len(arguments))
        return LocalTasks().run(function, arguments)


@pytest.mark.parametrize("cover", COVERS)
def test_tasks_share_the_files(tmp_path: Path, cover: Cover) -> None:
    lake = replayed(tmp_path, cover=cover)
    log = pin_input(lake.pipeline, lake.lake, lake.ask().slices)
    whole = check_log_bytes(LocalTasks(), log)
    shared = _Counting()
    assert [check_log_bytes(shared, log, bytes_per_task=size) for size in (1, 6_000, 10**9)] == [whole] * 3
    assert shared.tasks[0] == 4
    assert shared.tasks[1:] in ([2], [3])  # few bytes are read by the driver


@pytest.mark.slow
def test_a_checkpoint_of_delta_may_be_written_again(tmp_path: Path) -> None:
    """Its bytes differ then, and so does its time. A damaged one has the same time."""
    lake = replayed(tmp_path, cover="nothing")
    clean_commits(lake.log)
    view = run(lake.lake, pipeline_of(PIPELINE.replace("size: 12h", "size: 6h")))
    later = replace(lake, view=view)
    [checkpoint] = (lake.log / "_delta_log").glob("*.parquet")
    good = later.planned()
    with flipped(checkpoint, 8 * 300), pytest.raises(LogError, match=f"{checkpoint.name}.*you can remove it instead"):
        later.planned()
    pq.write_table(pq.read_table(checkpoint), checkpoint, compression="zstd")
    assert later.planned() == good


def test_another_table_at_the_same_place_is_another_log(tmp_path: Path) -> None:
    """The names of its commit files are the same. Nothing is compared with the digests of the first one."""
    lake = replayed(tmp_path, cover="nothing")
    lake.log.rename(tmp_path / "elsewhere")
    write_log(lake.log, Random(2), cover="nothing")
    assert DeltaTable(str(lake.log)).version() == 3
    assert lake.planned() == [Reason.INPUT_CHANGED] * 2
    run(lake.lake, lake.pipeline)
