"""Changes to Delta tables that deltalake cannot make: removed commits, mapped columns, truncated files. No Spark."""

import json
import os
from pathlib import Path
from random import Random
from typing import Any

from deltalake import DeltaTable

TRACKED = {
    "delta.enableRowTracking": "true",
    "delta.rowTracking.materializedRowIdColumnName": "_row-id-col-1",
    "delta.rowTracking.materializedRowCommitVersionColumnName": "_row-commit-version-col-1",
}


def commits_of(table: Path) -> list[Path]:
    """Return the commit files, oldest first."""
    return sorted(path for path in (table / "_delta_log").glob("*.json") if path.stem.isdigit())


def clean_commits(table: Path) -> None:
    """Write a checkpoint of the newest version and remove the commits before it, as log retention does."""
    DeltaTable(str(table)).create_checkpoint()
    for commit in commits_of(table)[:-1]:
        commit.unlink()


def map_columns(table: Path, mode: str) -> None:
    """Rewrite the commits of a table with column mapping: they then use physical column names."""
    for commit in commits_of(table):
        lines = [_mapped(json.loads(line), mode) for line in commit.read_text(encoding="utf-8").splitlines()]
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
                field["metadata"] = {
                    "delta.columnMapping.id": number,
                    "delta.columnMapping.physicalName": physical,
                }
            action["schemaString"] = json.dumps(schema)
            action["configuration"] = {"delta.columnMapping.mode": mode}
        if "partitionValues" in action:
            action["partitionValues"] = {f"col-{name[::-1]}": one for name, one in action["partitionValues"].items()}
    return entry


def cut_off(path: Path, *, keep: float) -> None:
    """Truncate a file to a share of its bytes."""
    os.truncate(path, int(path.stat().st_size * keep))


def track_rows(table: Path) -> None:
    """Rewrite the commits of a table as Spark writes them with row tracking: each file has the ids of its rows."""
    next_id = 0
    for version, commit in enumerate(commits_of(table)):
        lines = [json.loads(line) for line in commit.read_text(encoding="utf-8").splitlines()]
        for entry in lines:
            if "protocol" in entry:
                features = ["domainMetadata", "rowTracking"]
                entry["protocol"] = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}
            if "metaData" in entry:
                entry["metaData"]["configuration"] |= TRACKED
            if "add" in entry:
                entry["add"] |= {"baseRowId": next_id, "defaultRowCommitVersion": version}
                next_id += int(json.loads(entry["add"]["stats"])["numRecords"])
        highest = json.dumps({"rowIdHighWaterMark": next_id - 1})
        domain = {"domain": "delta.rowTracking", "configuration": highest, "removed": False}
        lines.append({"domainMetadata": domain})
        commit.write_text("\n".join(json.dumps(line, separators=(",", ":")) for line in lines), encoding="utf-8")


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
    commits = [list(map(json.loads, commit.read_text("utf-8").splitlines())) for commit in commits_of(table)]
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


def _operation(name: str) -> dict[str, Any]:
    return {"commitInfo": {"timestamp": 0, "operation": name, "operationParameters": {}}}


def _write_commits(table: Path, texts: list[str]) -> None:
    for commit in commits_of(table):
        commit.unlink()
    for version, text in enumerate(texts):
        (table / "_delta_log" / f"{version:020}.json").write_text(text, encoding="utf-8")
