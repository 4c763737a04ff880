"""Tallies of edges by cell are those of the records sorted by cell."""

from random import Random

import numpy as np

from tests.support.fuzzing import seeds
from windowlib.kernels.aggregates.cells import Cells
from windowlib.kernels.edges import EdgeColumns
from windowlib.kernels.grouping import sorted_rows, starts_of
from windowlib.records.row_ids import IdSum


def test_tallies_of_cells_are_those_of_groups() -> None:
    for seed in seeds(200):
        random = Random(seed)
        count, cells = random.randrange(40), random.randint(1, 9)
        ids = np.array([random.randrange(-(1 << 63), 1 << 63) for _ in range(count)], dtype=np.int64)
        of_record = np.array([random.randrange(cells) for _ in range(count)], dtype=np.int64)
        order, codes = sorted_rows(of_record)
        expected = EdgeColumns.of_groups(ids[order], starts_of(codes))
        if random.random() < 0.3:
            ids = np.stack([ids, ids], axis=1)[:, 0]  # with gaps
        ids.setflags(write=random.random() < 0.5)  # arrays over the buffers of Arrow are read-only
        found = EdgeColumns.of_cells(ids, Cells.of(of_record, cells))
        for name in ("count", "xor", "total"):
            assert getattr(found, name).tolist() == getattr(expected, name).tolist(), f"seed {seed}"
        assert found.sum() == IdSum.of_array(ids), f"seed {seed}"
