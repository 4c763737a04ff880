"""The files of killed replays are told from those that a commit names or has named."""

from pathlib import Path
from random import Random

from jobs.lake.lake import Lake
from jobs.lake.leftover_files import LakeFiles
from tests.support.fuzzing import seeds
from tests.support.leftovers import PIPELINE, check_leftover_files


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
