"""Changes to Delta tables that deltalake cannot make: removed commits, mapped columns, truncated files. No Spark."""

import json
import os
import re
import string
import struct
from collections.abc import Collection, Mapping
from pathlib import Path
from random import Random
from typing import Any

from deltalake import DeltaTable

from jobs.lake.json_lines import json_lines

TRACKED = {
    "delta.enableRowTracking": "true",
    "delta.rowTracking.materializedRowIdColumnName": "_row-id-col-1",
    "delta.rowTracking.materializedRowCommitVersionColumnName": "_row-commit-version-col-1",
}

FEATURES = ("readerFeatures", "writerFeatures")


def commits_of(table: Path) -> list[Path]:
    """Return the commit files, oldest first."""
    return sorted(path for path in (table / "_delta_log").glob("*.json") if path.stem.isdigit())


def clean_commits(table: Path) -> None:
    """Write a checkpoint of the newest version and remove the commits before it, as log retention does."""
    DeltaTable(str(table)).create_checkpoint()
    for commit in commits_of(table)[:-1]:
        commit.unlink()


def without_statistics(table: Path) -> None:
    """Rewrite the commits of a table as if their writer stored no statistics of files."""
    for commit in commits_of(table):
        commit.write_text(re.sub(r',?"stats":"(?:[^"\\]|\\.)*"', "", commit.read_text()))


def map_columns(table: Path, mode: str) -> None:
    """Rewrite the commits of a table with column mapping: they then use physical column names."""
    for commit in commits_of(table):
        lines = [_mapped(entry, mode) for entry in json_lines(commit.read_bytes())]
        commit.write_text("\n".join(json.dumps(line, separators=(",", ":")) for line in lines), encoding="utf-8")


def _mapped(entry: dict[str, object], mode: str) -> dict[str, object]:
    for kind, action in entry.items():
        assert isinstance(action, dict), "an action is an object"
        if kind == "protocol":
            entry[kind] = {"minReaderVersion": 2, "minWriterVersion": 5}
        if kind == "metaData":
            schema = json.loads(action["schemaString"])
            for number, field in enumerate(schema["fields"], start=1):
                physical = f"col-{field['name'][::-1]}"
                field["metadata"] = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical}
            action["schemaString"] = json.dumps(schema)
            action["configuration"] = {"delta.columnMapping.mode": mode}
        if "partitionValues" in action:
            action["partitionValues"] = {f"col-{name[::-1]}": one for name, one in action["partitionValues"].items()}
    return entry


def rename_columns(table: Path, names: Mapping[str, str], *, after: int) -> None:
    """Rewrite the commits of a table as if ALTER TABLE had mapped and renamed its columns after the first `after` ones.

    `names` maps each column to its new name. The later commits have the old names, which are the physical names now.
    """
    texts = [commit.read_text(encoding="utf-8") for commit in commits_of(table)]
    metadata = next(json.loads(line)["metaData"] for line in texts[0].splitlines() if "metaData" in json.loads(line))
    schema = json.loads(metadata["schemaString"])
    for number, field in enumerate(schema["fields"], start=1):
        field["metadata"] = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": field["name"]}
        field["name"] = names[field["name"]]
    metadata |= {
        "schemaString": json.dumps(schema),
        "partitionColumns": [names[name] for name in metadata["partitionColumns"]],
        "configuration": {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": str(len(names))},
    }
    protocol = {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}
    renamed = "\n".join(map(json.dumps, [_operation("RENAME COLUMN"), protocol, {"metaData": metadata}]))
    _write_commits(table, [*texts[:after], renamed, *texts[after:]])


def cut_off(path: Path, *, keep: float) -> None:
    """Truncate a file to a share of its bytes."""
    os.truncate(path, int(path.stat().st_size * keep))


def track_rows(table: Path) -> None:
    """Rewrite the commits of a table as Spark writes them with row tracking: each file has the ids of its rows."""
    next_id = 0
    for version, commit in enumerate(commits_of(table)):
        lines = json_lines(commit.read_bytes())
        for entry in lines:
            if "protocol" in entry:
                features = sorted({*entry["protocol"].get("writerFeatures", ()), "domainMetadata", "rowTracking"})
                entry["protocol"] |= {"minWriterVersion": 7, "writerFeatures": features}
            if "metaData" in entry:
                entry["metaData"]["configuration"] |= TRACKED
            if "add" in entry:
                entry["add"] |= {"baseRowId": next_id, "defaultRowCommitVersion": version}
                next_id += int(json.loads(entry["add"]["stats"])["numRecords"])
        highest = json.dumps({"rowIdHighWaterMark": next_id - 1})
        domain = {"domain": "delta.rowTracking", "configuration": highest, "removed": False}
        lines.append({"domainMetadata": domain})
        commit.write_text("\n".join(json.dumps(line, separators=(",", ":")) for line in lines), encoding="utf-8")


def mark_deleted(table: Path, rows: Mapping[str, Collection[int]], *, operation: str = "DELETE") -> int:
    """Commit a DELETE as Spark does with deletion vectors: the files stay, and vectors mark rows of them as deleted.

    `rows` maps the path of a file, as in the commits, to all row numbers that are deleted then. Return the version.
    """
    commits = [json_lines(commit.read_bytes()) for commit in commits_of(table)]
    adds = {entry["add"]["path"]: entry["add"] for entries in commits for entry in entries if "add" in entry}
    protocol = next(entry["protocol"] for entries in reversed(commits) for entry in entries if "protocol" in entry)
    features = {name: sorted({*(protocol.get(name) or ()), "deletionVectors"}) for name in FEATURES}
    entries = [_operation(operation), {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}]
    for path, deleted in rows.items():
        before = adds[path]
        if before.get("deletionVector") == deletion_vector(deleted):
            continue
        kept = ("path", "partitionValues", "size", "deletionVector", "baseRowId", "defaultRowCommitVersion")
        entries.append({"remove": {name: before[name] for name in kept if name in before} | {"dataChange": True}})
        entries.append({"add": before | {"deletionVector": deletion_vector(deleted), "dataChange": True}})
    version = len(commits)
    text = "\n".join(map(json.dumps, entries))
    (table / "_delta_log" / f"{version:020}.json").write_text(text, encoding="utf-8")
    return version


def deletion_vector(rows: Collection[int]) -> dict[str, Any]:
    """Return the inline descriptor of a deletion vector (the Delta protocol, section "Deletion Vector Format")."""
    numbers = sorted(rows)
    highs = sorted({number >> 16 for number in numbers})
    containers = [[number & 0xFFFF for number in numbers if number >> 16 == high] for high in highs]
    assert all(len(one) <= 4_096 for one in containers), "a container with more values has another format"
    keys = b"".join(struct.pack("<HH", high, len(one) - 1) for high, one in zip(highs, containers, strict=True))
    place, places = 8 + 8 * len(highs), b""
    for one in containers:
        places += struct.pack("<I", place)
        place += 2 * len(one)
    values = b"".join(struct.pack(f"<{len(one)}H", *one) for one in containers)
    bitmap = struct.pack("<II", 12_346, len(highs)) + keys + places + values  # a Roaring bitmap of 32 bits
    raw = struct.pack("<IQI", 1_681_511_377, 1, 0) + bitmap
    return {
        "storageType": "i",
        "pathOrInlineDv": _z85(raw + b"\0" * (-len(raw) % 4)),
        "sizeInBytes": len(raw),
        "cardinality": len(numbers),
    }


def _z85(raw: bytes) -> str:
    digits = string.digits + string.ascii_lowercase + string.ascii_uppercase + ".-:+=^!/*?&<>()[]{}@%$#"
    words = struct.unpack(f">{len(raw) // 4}I", raw)
    return "".join(digits[word // 85**power % 85] for word in words for power in range(4, -1, -1))


def merge_commits(table: Path, version: int) -> None:
    """Make one commit of a commit and the next one. Its files are in the order of both."""
    texts = [commit.read_text(encoding="utf-8") for commit in commits_of(table)]
    adds = [line for line in texts[version + 1].splitlines() if "add" in json.loads(line)]
    merged = "\n".join([*texts[version].splitlines(), *adds])
    _write_commits(table, [*texts[:version], merged, *texts[version + 2 :]])


def track_rows_later(table: Path, chance: Random, *, after: int, batches: int = 1, meanwhile: int = 0) -> int:
    """Rewrite the commits of a table as if ALTER TABLE had switched row tracking on after the first `after` commits.

    Spark makes at least three commits for it. Those in the middle, the backfill, give ids to the files of the first
    commits, in any order. `meanwhile` is the number of commits that another writer made before the backfill. Return the
    number of files in the first commit of the backfill.
    """
    commits = [json_lines(commit.read_bytes()) for commit in commits_of(table)]
    old, new = commits[:after], commits[after:]
    live = {entry["add"]["path"]: entry["add"] for entries in old for entry in entries if "add" in entry}
    for entries in old:
        for entry in entries:
            live.pop(entry.get("remove", {}).get("path"), None)
    adds = [{"add": add | {"dataChange": False}} for add in chance.sample([*live.values()], len(live))]
    features = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["domainMetadata", "rowTracking"]}
    enabled = json.loads(json.dumps(next(entry for entry in old[0] if "metaData" in entry)))
    enabled["metaData"]["configuration"] |= TRACKED
    between: list[list[dict[str, Any]]] = [
        [_operation("UPGRADE PROTOCOL"), {"protocol": features}],
        *new[:meanwhile],
        *([_operation("ROW TRACKING BACKFILL"), *adds[batch::batches]] for batch in range(batches)),
        [_operation("SET TBLPROPERTIES"), enabled],
    ]
    next_id = 0
    for version, entries in enumerate([*between, *new[meanwhile:]], start=after):
        for entry in entries:
            if "add" in entry:
                entry["add"] |= {"baseRowId": next_id, "defaultRowCommitVersion": version}
                next_id += int(json.loads(entry["add"]["stats"])["numRecords"])
    _write_commits(table, ["\n".join(map(json.dumps, entries)) for entries in [*old, *between, *new[meanwhile:]]])
    return len(adds[::batches])


def change_bounds(table: Path, end: str, column: str, value: object, *, chance: Random | None = None) -> None:
    """Store another bound of a column in the statistics of all files in the commits of a table, or of a random one.

    `end` is `minValues` or `maxValues`. It is damage: the rows of the files stay.
    """
    commits = {path: json_lines(path.read_bytes()) for path in commits_of(table)}
    adds = [entry["add"] for entries in commits.values() for entry in entries if "add" in entry]
    for add in adds if chance is None else [chance.choice(adds)]:
        statistics = json.loads(add["stats"])
        statistics.setdefault(end, {})[column] = value
        add["stats"] = json.dumps(statistics)
    for path, entries in commits.items():
        path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))


def _operation(name: str) -> dict[str, Any]:
    return {"commitInfo": {"timestamp": 0, "operation": name, "operationParameters": {}}}


def _write_commits(table: Path, texts: list[str]) -> None:
    for commit in commits_of(table):
        commit.unlink()
    for version, text in enumerate(texts):
        (table / "_delta_log" / f"{version:020}.json").write_text(text, encoding="utf-8")
