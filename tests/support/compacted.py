"""Compacts a Delta table with row tracking as Spark's OPTIMIZE does, without Spark."""

import json
from collections.abc import Sequence
from itertools import count, zip_longest
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.lake.json_lines import json_lines
from tests.support.delta_logs import TRACKED, commits_of

ROW_ID = TRACKED["delta.rowTracking.materializedRowIdColumnName"]
VERSION = TRACKED["delta.rowTracking.materializedRowCommitVersionColumnName"]


def in_turns(chance: Random, parts: Sequence[Sequence[int]]) -> list[int]:
    """Return numbers of parts: of some at a time in turns, and those of the others one part after the other."""
    waiting, taken = [*parts], []
    chance.shuffle(waiting)
    while waiting:
        lanes, waiting = waiting[: (size := chance.randint(1, 3))], waiting[size:]
        turns = zip_longest(*lanes)
        taken += [number for turn in turns for number in turn if number is not None]
    return taken


def compact(table: Path, chance: Random) -> None:
    """Commit an OPTIMIZE of the files of some partitions: the rows of each partition take turns in one new file."""
    entries = [entry for commit in commits_of(table) for entry in json_lines(commit.read_bytes())]
    adds = [entry["add"] for entry in entries if "add" in entry]
    version = len(commits_of(table))
    lines: list[dict[str, Any]] = [{"commitInfo": {"timestamp": 0, "operation": "OPTIMIZE", "operationParameters": {}}}]
    base = max(add["baseRowId"] + json.loads(add["stats"])["numRecords"] for add in adds)
    for number, values in zip(count(), {json.dumps(add["partitionValues"]) for add in adds}, strict=False):
        own = [add for add in adds if json.dumps(add["partitionValues"]) == values]
        if chance.random() < 0.2:
            continue
        own = own if chance.random() < 0.7 else own[:-1]
        tables = [pq.ParquetFile(table / add["path"]).read() for add in own]
        if not sum(rows.num_rows for rows in tables):
            continue
        ids = [[add["baseRowId"] + row for row in range(rows.num_rows)] for add, rows in zip(own, tables, strict=True)]
        versions = {
            row_id: add["defaultRowCommitVersion"] for add, part in zip(own, ids, strict=True) for row_id in part
        }
        flat = [row_id for part in ids for row_id in part]
        taken = in_turns(chance, ids)
        places = {row_id: place for place, row_id in enumerate(flat)}
        whole = pa.concat_tables(tables).take(pa.array([places[row_id] for row_id in taken], pa.int64()))
        whole = whole.append_column(ROW_ID, pa.array(taken, pa.int64()))
        whole = whole.append_column(VERSION, pa.array([versions[row_id] for row_id in taken], pa.int64()))
        path = f"{Path(own[0]['path']).parent}/compacted-{version}-{number}.parquet"
        pq.write_table(whole, table / path, row_group_size=chance.choice((7, 50, 1_000_000)))
        kept = ("path", "partitionValues", "size", "baseRowId", "defaultRowCommitVersion")
        lines += [{"remove": {name: add[name] for name in kept} | {"dataChange": False}} for add in own]
        of_file = {
            "path": path,
            "partitionValues": own[0]["partitionValues"],
            "size": (table / path).stat().st_size,
            "modificationTime": 2**42,
            "dataChange": False,
            "stats": json.dumps({"numRecords": whole.num_rows}),
            "baseRowId": base,
            "defaultRowCommitVersion": version,
        }
        lines.append({"add": of_file})
        base += whole.num_rows
    text = "\n".join(json.dumps(line, separators=(",", ":")) for line in lines)
    (table / "_delta_log" / f"{version:020}.json").write_text(text, encoding="utf-8")
