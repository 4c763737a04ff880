"""Law L9: a flip in any region of any table changes no result, unless a run, `verify` or a reader tells it."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from tests.flips import lakes
from tests.flips.regions import regions_of
from tests.flips.sweeps import COLUMNS, GROUPS, Found, Group, Place, Sweep, counted, table_lines
from tests.support.fuzzing import first_seed
from tests.support.write_faults import ForkServer
from windowlib.records import tables

IN_MAKE_SLOW = 2
"""Flips of each group of tables."""
OURS = [group for group in GROUPS if not group.is_first]
of_each_group = pytest.mark.parametrize("group", OURS, ids=[group.name for group in OURS])


@contextmanager
def prepared(group: Group, place: Path) -> Iterator[Sweep]:
    with ForkServer(place / "server") as server:
        yield Sweep(group, server, place).prepare()


def play(group: Group, place: Path, *, most: int, sample: int | None = None) -> Sequence[Found]:
    """Play places of a group, and print the counts. Fail if a flip is silent, or ends with a traceback."""
    seed = first_seed()
    print(f"HINDCAST_SEED={seed}")  # noqa: T201 - pytest shows it with a failure
    with prepared(group, place) as sweep:
        places = sweep.places(most, seed=seed)
        chosen = places if sample is None else Random(seed).sample(places, sample)
        played = [sweep.play(each) for each in chosen]
    print(dict(zip(COLUMNS, counted(played), strict=True)))  # noqa: T201
    assert [flip for flip in played if flip.is_silent or flip.problems] == []
    return played


@pytest.mark.slow
@of_each_group
def test_flips_of_every_region_are_found_or_harmless(tmp_path: Path, group: Group) -> None:
    play(group, tmp_path, most=20, sample=IN_MAKE_SLOW)


@pytest.mark.soak
@pytest.mark.timeout(7_200)
@of_each_group
def test_many_flips_of_every_region_are_found_or_harmless(tmp_path: Path, group: Group) -> None:
    play(group, tmp_path, most=20)


@pytest.mark.slow
def test_the_regions_of_a_file_are_all_its_bytes(tmp_path: Path) -> None:
    """No byte is in two regions, and every kind of file and region is there."""
    lakes.make(str(tmp_path), "checksum files")
    lakes.make_snapshot(str(tmp_path))
    kinds: Counter[str] = Counter()
    for path in (tmp_path / "lake").rglob("*"):
        if path.is_file() and path.stat().st_size:
            place = 0
            for region in sorted(regions_of(path), key=lambda region: region.start):
                assert region.start == place, (path, region)
                place = region.stop
                kinds[region.kind] += region.stop - region.start
            assert place == path.stat().st_size, path
    parts = (
        "magic",
        "page header",
        "dictionary page",
        "page data",
        "column chunk metadata",
        "statistics in the footer",
    )
    expected = {*parts, *(f"checkpoint of Delta: {part}" for part in parts), "footer", "footer length", "head"}
    expected |= {f"Delta log: add, {part}" for part in ("path", "size", "stats", "partitionValues", "rest")}
    expected |= {f"Delta log: {part}" for part in ("commitInfo", "protocol", "metaData", "before its checkpoint")}
    expected |= {"_last_checkpoint", "snapshot", "index", "checksum file of a data file"}
    assert expected <= {*kinds}, expected - {*kinds}


def test_the_table_has_a_line_for_each_region() -> None:
    place = GROUPS[0].directories[0]
    flips = [
        Found(_place("magic", place), by_run=True, by_verify=True, by_reader=False, wrong=(), problems=()),
        Found(_place("magic", place), by_run=False, by_verify=False, by_reader=False, wrong=(), problems=()),
        Found(_place("footer", place), by_run=False, by_verify=True, by_reader=False, wrong=("x",), problems=()),
        Found(_place("footer", place), by_run=True, by_verify=False, by_reader=False, wrong=("x",), problems=()),
    ]
    _, _, *lines = table_lines({"log": flips})
    assert lines == [
        "| log | magic | 2 | 1 | 1 | 0 | 1 | 0 | 0 |",
        "| log | footer | 2 | 1 | 1 | 0 | 0 | 1 | 1 |",
        "| all | | 4 | 2 | 2 | 0 | 1 | 1 | 1 |",
    ]
    assert {f"late/{name}" for name in (tables.WINDOW_OUTPUTS, tables.LEDGER, *tables.CHECKPOINT_TABLES)} <= {
        name for group in GROUPS for name in group.directories
    }


def _place(kind: str, file: str) -> Place:
    return Place(kind, file, 0, 0)
