"""Changes to Delta tables that deltalake cannot make: removed commits, mapped columns, truncated files. No Spark."""

import json
import os
from pathlib import Path

from deltalake import DeltaTable


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
                hidden = {"delta.rowTracking.materializedRowIdColumnName": "_row-id-col-1"}
                entry["metaData"]["configuration"] |= {"delta.enableRowTracking": "true", **hidden}
            if "add" in entry:
                entry["add"] |= {"baseRowId": next_id, "defaultRowCommitVersion": version}
                next_id += int(json.loads(entry["add"]["stats"])["numRecords"])
        highest = json.dumps({"rowIdHighWaterMark": next_id - 1})
        domain = {"domain": "delta.rowTracking", "configuration": highest, "removed": False}
        lines.append({"domainMetadata": domain})
        commit.write_text("\n".join(json.dumps(line, separators=(",", ":")) for line in lines), encoding="utf-8")
