"""The rows of a deletion vector: any stretch of a file is read from the bits of that stretch."""

import json
import random
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.lake.delta_log import describe_log
from jobs.lake.log_version import DeletedRows
from tests.support.delta_logs import commits_of, mark_deleted
from windowlib.errors import LogError

WIDENS = ["deletionVectors", "typeWidening"]
"""Features of which deltalake reads each one alone. With both, it reads no deletion vector."""


def test_the_rows_of_any_stretch_are_those_of_the_whole_file() -> None:
    for seed in range(300):
        draw = random.Random(seed)
        kept = np.array([draw.random() < 0.7 for _ in range(draw.randrange(1, 90))])
        deleted = DeletedRows.of(kept)
        first, count = draw.randrange(100), draw.randrange(40)
        expected = np.concatenate([kept, np.ones(140, dtype=bool)])[first : first + count]
        assert deleted.is_kept(first, count).tolist() == expected.tolist(), f"seed {seed}"


def test_a_batch_of_a_large_file_costs_no_more_than_a_batch_of_a_small_one() -> None:
    deleted = DeletedRows(bits=bytes(12_500_000))
    began = time.process_time()
    for number in range(20):
        deleted.is_kept(number * 1_000, 1_000)
    assert time.process_time() - began < 0.1, "the bits of 100 M rows took 10 ms or more each time"


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_a_feature_that_hides_deletion_vectors_refuses_only_a_table_that_has_one(
    tmp_path: Path, *, has_checkpoint: bool
) -> None:
    write_deltalake(str(tmp_path), pa.table({"a": [1, 2, 3]}))
    [path] = DeltaTable(str(tmp_path)).get_add_actions()["path"].to_pylist()
    commit(tmp_path, {"protocol": protocol(WIDENS)})
    assert [file.records for file in describe_log(str(tmp_path)).files()] == [3]
    commit(tmp_path, {"protocol": protocol(WIDENS[:1])})
    mark_deleted(tmp_path, {path: [1]})
    if has_checkpoint:
        DeltaTable(str(tmp_path)).create_checkpoint()
    assert [file.records for file in describe_log(str(tmp_path)).files()] == [2]
    commit(tmp_path, {"protocol": protocol(WIDENS)})
    with pytest.raises(LogError, match=r"TypeWidening\].*Drop the feature.*REORG TABLE … APPLY \(PURGE\)"):
        describe_log(str(tmp_path)).files()
    _, _, remove, add = (json.loads(line) for line in commits_of(tmp_path)[3].read_text("utf-8").splitlines())
    purged = {name: value for name, value in add["add"].items() if name != "deletionVector"}
    marked = remove["remove"] | {"deletionVector": add["add"]["deletionVector"]}
    commit(tmp_path, {"remove": marked}, {"add": purged})
    assert [file.deleted for file in describe_log(str(tmp_path)).files()] == [None]


def test_a_feature_that_is_not_read_is_named_and_no_damage(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), pa.table({"a": [1]}))
    commit(tmp_path, {"protocol": protocol(["checkpointProtection"])})
    with pytest.raises(LogError, match=r"'checkpointProtection' is not supported. .* Drop the feature") as refused:
        describe_log(str(tmp_path))
    assert "damaged" not in str(refused.value)


def protocol(features: list[str]) -> dict[str, object]:
    return {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}


def commit(table: Path, *entries: dict[str, object]) -> None:
    path = table / "_delta_log" / f"{len(commits_of(table)):020}.json"
    path.write_text("\n".join(map(json.dumps, entries)), "utf-8")
