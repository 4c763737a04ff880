"""A clean-up, also a killed one, removes the files of copies that nothing needs, and only these."""

import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import Mock

import pytest
from deltalake import DeltaTable

from jobs.lake import plain_table
from jobs.lake.lake import CURRENT, Lake
from jobs.lake.leftover_files import UPSTREAM, LakeFiles
from jobs.pipeline.files import parse_pipeline
from jobs.planning.request_context import Asked, RequestContext, open_request, open_request_context
from jobs.publishing.cleaning import clean_lake
from jobs.publishing.current_tables import current_tables, move_current_tables
from jobs.publishing.decisions import rollback
from jobs.publishing.replaced_files import replaced_files
from jobs.reading import upstream_place
from jobs.reading.upstream_place import UpstreamPlace
from tests.jobs.publishing.test_current_tables import Killed, RandomPublications, rows_of
from tests.support.fuzzing import seeds
from tests.support.repair_model import DAY_MS
from tests.support.small_lake import WHO, SmallLake

LATER_MS = 2**45
"""A time at which all files are old."""
READER = """
pipeline: reader
log: {pipeline: late, key: [k], event_time: {column: window_time}}
watermark: {kind: ascending}
windows: {tumbling: {size: 2d}}
aggregates: {n: {count: {}}}
"""


class KilledFiles(LakeFiles):
    """The files of a lake, for a process that is killed before one of its removals."""

    left: int = 0

    def remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            KilledFiles.left -= 1
            if KilledFiles.left < 0:
                raise Killed
            super().remove([path])


def clean_copies(work: RequestContext, rng: Random, **limits: int) -> None:
    """Remove what nothing needs. Some processes before are killed."""
    for _ in range(rng.randrange(3)):
        KilledFiles.left = rng.randrange(4)
        files = KilledFiles(lake=work.lake, pipeline=work.pipeline.name)
        with suppress(Killed):
            files.remove(file.path for file in replaced_files(work, files, **limits))
    whole = LakeFiles(lake=work.lake, pipeline=work.pipeline.name)
    whole.remove(file.path for file in replaced_files(work, whole, **limits))


def test_a_current_table_keeps_its_rows_and_no_other_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = plain_table.replace_slices
    for seed in seeds(1):
        rng = Random(seed)
        story = RandomPublications(tmp_path / str(seed), rng)
        story.work.ledger.now_ms = lambda: LATER_MS

        def killed(*arguments: Any, rng: Random = rng) -> bool:  # noqa: ANN401
            if rng.random() < 0.4:
                for _ in arguments[1]:  # the files are written
                    pass
                raise Killed
            return commit(*arguments)

        monkeypatch.setattr(plain_table, "replace_slices", killed)
        for _ in range(4):
            story.change()
            with suppress(Killed):
                move_current_tables(story.work)
            if rng.random() < 0.5 and Path(story.uri).exists():
                before = rows_of(story.uri)
                clean_copies(story.work, rng, older_than_ms=3_600_000)
                assert rows_of(story.uri) == before
        monkeypatch.setattr(plain_table, "replace_slices", commit)
        move_current_tables(story.work)
        version = DeltaTable(story.uri).version()
        clean_copies(story.work, rng, older_than_ms=3_600_000)
        older = DeltaTable(story.uri, version=version - 1).to_pyarrow_table()
        assert older is not None, "the files of the version before are an hour younger than the limit"
        clean_copies(story.work, rng, older_than_ms=0, writing_ms=0)
        assert rows_of(story.uri) == story.expected()
        stored = {path.name for path in Path(story.uri).rglob("*.parquet") if "_delta_log" not in path.parts}
        assert stored == {Path(path).name for path in DeltaTable(story.uri).file_uris()}
        left = replace(story.work, pipeline=story.work.pipeline.model_copy(update={"publish": None}))
        copied, note = f"{story.uri}_of_ann", Path(f"{story.uri}.txt")
        shutil.copytree(story.uri, copied)
        note.touch()
        # A process that is killed while it removes a table leaves empty directories.
        Path(story.uri).parent.joinpath(f"{CURRENT}late_records", "_delta_log").mkdir(parents=True)
        now_ms = int(max(path.stat().st_mtime for path in Path(story.uri).rglob("*")) * 1_000)
        monkeypatch.setattr(story.work.ledger, "now_ms", Mock(return_value=now_ms + 7_000_000))
        clean_copies(left, rng, older_than_ms=8_000_000, writing_ms=0)
        assert rows_of(story.uri) == story.expected(), "its newest file is young"
        assert [current.is_behind for current in current_tables(left)] == [True]
        clean_copies(left, rng, older_than_ms=6_000_000, writing_ms=0)
        assert (Path(story.uri).exists(), current_tables(left)) == (False, ())
        assert note.exists(), "Defect: its name was refused as that of a table"
        assert rows_of(copied) == story.expected(), "Defect: the copy that a person has made was removed"


def reader_of(lake: SmallLake) -> RequestContext:
    pipeline = parse_pipeline(READER, source="reader.yaml")
    return open_request_context(pipeline, Lake(root=str(lake.root)), now_ms=lambda: lake.now_ms)


def cached(lake: SmallLake) -> set[Path]:
    return {path for path in (lake.root / "reader" / UPSTREAM).rglob("*.parquet") if path.is_file()}


def opened(lake: SmallLake, version: int | None = None) -> list[tuple[str, int]]:
    """Open the log. The files that are made are as old as the clock tells."""
    before, work = cached(lake), reader_of(lake)
    listing = UpstreamPlace(lake=work.lake, pipeline=work.pipeline).open(version).files()
    for path in cached(lake) - before:
        os.utime(path, (lake.now_ms / 1000,) * 2)
    return sorted((file.path, file.bytes or 0) for file in listing)


@pytest.mark.slow
def test_the_cache_keeps_what_the_log_had_since_the_limit_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed = 0
    for seed in seeds(3):
        rng = Random(seed)
        lake = SmallLake(tmp_path / str(seed))
        monkeypatch.setattr(upstream_place, "now_ms", lambda lake=lake: lake.now_ms)
        limit_ms = rng.choice([DAY_MS, 3 * DAY_MS])
        for _ in range(3):
            lake.append(rng)
        lake.run(0, 2)
        for step in range(6):
            lake.now_ms += rng.randrange(1, 2 * DAY_MS)
            opened(lake)
            if step % 3 == 2 and len(lake.view().standing) > 1:
                rollback(lake.work(), lake.view().standing[-1].seq, reason=WHO, who=WHO)
            else:
                lake.append(rng, rng.randrange(3))
                lake.run(0, 2)
            versions = [p.seq for p in lake.view().publications if p.at_ms > lake.now_ms - limit_ms]
            files = {version: opened(lake, version) for version in versions}
            before = cached(lake)
            clean_copies(reader_of(lake), rng, older_than_ms=limit_ms, writing_ms=0)
            removed += len(before - cached(lake))
            after = cached(lake)
            assert {version: opened(lake, version) for version in versions} == files
            assert cached(lake) == after, "a file that was needed had been removed"
    assert removed


@pytest.mark.slow
def test_the_cache_stays_while_a_process_works_and_goes_with_the_log(tmp_path: Path) -> None:
    rng, lake = Random(5), SmallLake(tmp_path)
    for _ in range(2):
        lake.append(rng)
    lake.run(0, 1)
    opened(lake)
    lake.append(rng, 0)
    lake.run(0, 1)
    opened(lake)
    lake.now_ms += 30 * DAY_MS
    work = replace(reader_of(lake), is_alive=lambda _holder: True)
    open_request(work, Asked(from_ms=0, to_ms=DAY_MS, who=WHO, reason="works"))
    assert clean_lake(work, older_than_ms=0, who=WHO, dry_run=True).replaced == ()
    work = replace(work, is_alive=lambda _holder: False)
    found = clean_lake(work, older_than_ms=0, who=WHO, dry_run=True)
    assert 0 < len(found.replaced) < len(cached(lake))
    assert found.to_json()["replaced_files"] == {UPSTREAM: len(found.replaced)}
    other = replace(work, pipeline=lake.work().pipeline.model_copy(update={"name": "reader"}))
    clean_lake(other, older_than_ms=0, who=WHO, dry_run=False)
    assert cached(lake) == set(), "the pipeline reads another log now"
