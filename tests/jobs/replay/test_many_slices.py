"""A chunk has any number of slices. What is done for each slice does not read what was counted in all others."""

from collections.abc import ItemsView, Iterator
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from jobs.replay.chunk.tallies import ChunkTallies
from jobs.replay.equations import Audit
from jobs.replay.groups import groups_of
from tests.support.fuzzing import seeds
from windowlib.records.row_ids import IdSum

SLICES = 2_000


class Counting(dict[Any, IdSum]):
    """Counts the sums that are read one after the other."""

    read = 0

    def __iter__(self) -> Iterator[Any]:
        for key in super().__iter__():
            self.read += 1
            yield key

    def items(self) -> Any:  # noqa: ANN401 - Python makes no dict_items of a function
        return ItemsView(self)


def test_the_rows_and_digests_of_all_slices_read_each_sum_once() -> None:
    sums = Counting({(number, "rows", name): IdSum(1, number, number) for number in range(SLICES) for name in "ab"})
    tallies = ChunkTallies(sums)
    for number in range(SLICES):
        assert [(row["term"], row["id_xor"]) for row in tallies.rows(number)] == [("a", number), ("b", number)]
    assert len({tallies.digest(number) for number in range(SLICES)}) == SLICES
    assert tallies.rows(SLICES) == []
    assert sums.read == len(sums)


def test_the_audit_of_many_slices_reads_each_sum_a_few_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slice_ids = tuple(str(number) for number in range(SLICES))
    tallied = Counting({(name, "edges", term): IdSum(1, 5, 5) for name in slice_ids for term in ("new", "closed:end")})
    monkeypatch.setattr(Audit, "_tallies", lambda _audit: tallied)
    audit = Audit(table_uri=lambda name: str(tmp_path / name), slice_ids=slice_ids, attempt_id="a", before=None)
    assert len(audit.close()) == 3 * SLICES
    assert tallied.read <= 10 * len(tallied)


def test_groups_are_consecutive_and_as_large_as_allowed() -> None:
    for seed in seeds(200):
        random = Random(seed)
        items = [(place, random.choice((0, 1, 2, 5, 9))) for place in range(random.randrange(15))]
        most = random.randrange(12)
        groups = [*groups_of(items, itemgetter(1), most)]
        assert [item for group in groups for item in group] == items, f"seed {seed}"
        assert all(len(group) == 1 or sum(size for _, size in group) <= most for group in groups), f"seed {seed}"
        for group, following in pairwise(groups):
            assert sum(size for _, size in (*group, following[0])) > most, f"seed {seed}"
