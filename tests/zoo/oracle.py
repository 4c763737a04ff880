"""A second answer for entries with order columns: Python sorts the records into a row-tracked log, which is replayed.

Neither Spark nor the code that orders a log takes part. The records are read with deltalake, sorted by `in_order`, and
written in this order. The fingerprint of the spec is that of the entry's own pipeline.
"""

import itertools
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from jobs.engine import fingerprints
from jobs.lake.log_cut import Cut
from jobs.pipeline.files import pipeline_document
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import parse_bound, slices_between
from tests.support.delta_logs import TRACKED, commits_of
from tests.zoo.entries import Entry, Place, in_order
from tests.zoo.replaying import Answer, Zoo

FEATURES = ["domainMetadata", "rowTracking"]


def has_oracle(entry: Entry) -> bool:
    """Return whether the entry has an order by columns and one slice column, and deltalake reads its table as it is."""
    not_read = ("Spark", "Structured", "files with other upper")
    return (
        "order: [" in entry.log
        and not {"format: parquet", "format: iceberg", "changes: inserts"} & {*entry.log.splitlines()}
        and "by: [" not in entry.log
        and not entry.name.startswith(not_read)
    )


def oracle(zoo: Zoo, entry: Entry) -> Answer:
    """Return the answer of an entry with order columns, from a log whose records Python has sorted.

    Raises:
        Refused: as for `Zoo.replay`.
    """
    order = entry.pipeline().log.order
    original = zoo.table(entry)

    def build(place: Place) -> None:
        _write_sorted(entry, original, place.table)

    sorted_log = replace(
        entry, table=f"{entry.table}_sorted_by_{'_'.join(order)}", build=build,
        log=entry.log.replace(f"order: [{', '.join(order)}]", "order: commits"),
    )  # fmt: skip
    assert sorted_log.log != entry.log
    with _spec_of(entry):
        return zoo.replay(sorted_log)


@contextmanager
def _spec_of(entry: Entry) -> Iterator[None]:
    """Compute fingerprints as if the pipeline had the order of this entry."""
    own: Any = pipeline_document(entry.pipeline())["log"]

    def document(pipeline: Pipeline) -> dict[str, Any]:
        found: dict[str, Any] = {**pipeline_document(pipeline)}
        return found | {"log": found["log"] | {"order": own["order"]}}

    kept = fingerprints._kept_fingerprint
    with mock.patch.object(fingerprints, "pipeline_document", document):
        kept.cache_clear()
        yield
    kept.cache_clear()


def _write_sorted(entry: Entry, original: Path, table: Path) -> None:
    """Write the records in log order. A file has the records that follow each other with one value of the slice."""
    pipeline = entry.pipeline()
    order, [column] = pipeline.log.order, pipeline.log.slice.columns
    start_ms, end_ms = (parse_bound(pipeline, text) for text in entry.bounds)
    cut = Cut(uri="", by=pipeline.log.slice, slices=tuple(slices_between(pipeline, start_ms, end_ms)))
    rows = pa.table(DeltaTable(str(original)).to_pyarrow_table())
    keys = rows.select([*dict.fromkeys((*order, column))]).to_pylist()
    own = [{**key, "#": number, "value": str(key[column])} for number, key in enumerate(keys)]
    by_slice = sorted(in_order(own, order), key=lambda row: str(cut.slice_id(row["value"])))
    (table / "_delta_log").mkdir(parents=True)
    adds: list[dict[str, Any]] = []
    first = 0
    for value, group in itertools.groupby(by_slice, key=lambda row: str(row["value"])):
        records = rows.take([row["#"] for row in group]).drop_columns([column])
        path = table / f"{len(adds)}.parquet"
        pq.write_table(records, path)
        adds.append(_add(path, {column: value}, records=records.num_rows, first=first))
        first += records.num_rows
    entries = [
        {"commitInfo": {"timestamp": 0, "operation": "WRITE", "operationParameters": {}}},
        {"protocol": _protocol(original)},
        {"metaData": _metadata(original, column)},
        *({"add": one} for one in adds),
    ]  # fmt: skip
    (table / "_delta_log" / f"{0:020}.json").write_text("\n".join(map(json.dumps, entries)), "utf-8")


def _add(path: Path, values: Mapping[str, str], *, records: int, first: int) -> dict[str, Any]:
    return {
        "path": path.name, "partitionValues": values, "size": path.stat().st_size, "modificationTime": 0,
        "dataChange": True, "stats": json.dumps({"numRecords": records}), "baseRowId": first,
        "defaultRowCommitVersion": 0,
    }  # fmt: skip


def _protocol(original: Path) -> dict[str, Any]:
    if '"timestamp_ntz"' not in DeltaTable(str(original)).schema().to_json():
        return {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": FEATURES}
    local = "timestampNtz"
    return {
        "minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [local], "writerFeatures": [*FEATURES, local],
    }  # fmt: skip


def _metadata(original: Path, column: str) -> dict[str, Any]:
    schema = DeltaTable(str(original)).schema().to_json()
    first = commits_of(original)[0].read_text("utf-8").splitlines()
    table_id = next((json.loads(line)["metaData"]["id"] for line in first if "metaData" in json.loads(line)), "sorted")
    return {
        "id": table_id, "format": {"provider": "parquet", "options": {}}, "schemaString": schema,
        "partitionColumns": [column], "configuration": dict(TRACKED), "createdTime": 0,
    }  # fmt: skip
