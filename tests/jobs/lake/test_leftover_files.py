"""The files of killed replays are told from those that a commit names or has named."""

from pathlib import Path
from random import Random

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from jobs.lake.lake import Lake
from jobs.lake.leftover_files import LakeFiles
from tests.support.fuzzing import seeds
from tests.support.leftovers import PIPELINE, TABLE, Scene, check_leftover_files


def test_exactly_the_left_files_are_found_and_removed(tmp_path: Path) -> None:
    for seed in seeds(3):
        check_leftover_files(Lake(root=str(tmp_path / str(seed))), Random(seed))


def test_directories_that_become_empty_are_removed(tmp_path: Path) -> None:
    lake = Lake(root=str(tmp_path))
    place = tmp_path / PIPELINE / "_scratch" / "0a"
    place.mkdir(parents=True)
    (place / "f").touch()
    files = LakeFiles(lake=lake, pipeline=PIPELINE)
    files.remove(one.path for one in files.listed())
    assert list(tmp_path.iterdir()) == []


def test_a_pipeline_without_files_has_none(tmp_path: Path) -> None:
    assert LakeFiles(lake=Lake(root=str(tmp_path)), pipeline=PIPELINE).listed() == []


def test_the_committed_files_of_a_linked_table_are_not_left(tmp_path: Path) -> None:
    """A clean-up removed all rows of a table whose directory was a symbolic link to another disk."""
    scene = Scene(lake=Lake(root=str(tmp_path / "lake")), rng=Random(4)).make()
    place, other = tmp_path / "lake" / PIPELINE / TABLE.name, tmp_path / "disk"
    place.rename(other)
    place.symlink_to(other)
    left = {file.path for file in scene.files.listed()} - scene.files.named([TABLE.name])
    assert {Path(path).name for path in left} == {Path(path).name for path in scene.left}
    scene.files.remove(left)
    assert {path.name for path in other.rglob("*.parquet")} >= {Path(path).name for path in scene.committed}
    assert not {file.path for file in scene.files.listed()} - scene.files.named([TABLE.name])


def test_a_commit_deletes_the_rows_of_a_limited_number_of_attempts(tmp_path: Path) -> None:
    """Defect: one commit named all of them, and a clean-up of 30,000 attempts ended in a segmentation fault."""
    uri, attempts = tmp_path / PIPELINE / TABLE.name, [("2024-01-01", f"a{number}") for number in range(6)]
    rows = [{"slice_id": slice_id, "attempt_id": attempt_id, "n": 1} for slice_id, attempt_id in attempts]
    write_deltalake(uri, pa.Table.from_pylist(rows), partition_by=["slice_id", "attempt_id"])
    files = LakeFiles(lake=Lake(root=str(tmp_path)), pipeline=PIPELINE, most_deleted=2)
    for _ in range(2):
        files.delete_rows(TABLE.name, attempts[:5], metadata={"hindcast.test": "yes"})
        assert DeltaTable(uri).to_pyarrow_table()["attempt_id"].to_pylist() == ["a5"]
    told = [commit.get("hindcast.test") for commit in DeltaTable(uri).history() if commit["operation"] == "DELETE"]
    assert told == ["yes"] * 3
