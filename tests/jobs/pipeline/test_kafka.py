"""`log.kafka`: the keys that it stands for, and the order that is refused without sources."""

from typing import Any, Final

import pytest

from jobs.engine.fingerprints import spec_fingerprint
from jobs.pipeline.files import build_pipeline, pipeline_from_json, pipeline_to_json
from jobs.pipeline.log_schema import validate_against_schema
from jobs.pipeline.models.pipeline import Pipeline
from windowlib.errors import SpecError

COLUMNS: Final = {
    "topic": "string", "partition": "int", "offset": "bigint", "timestamp": "timestamp", "key": "binary",
    "value": "binary", "day": "date",
}  # fmt: skip
BOUNDED: Final = {"kind": "bounded", "out_of_orderness": "1h"}


def pipeline(log: dict[str, Any], watermark: dict[str, Any] | None = None) -> Pipeline:
    document = {
        "pipeline": "sample",
        "log": {"table": "messages", "slice": {"by": "day"}, **log},
        "watermark": BOUNDED if watermark is None else watermark,
        "windows": {"tumbling": {"size": "1h"}},
        "aggregates": {"n": {"count": {}}},
    }
    return build_pipeline(document, source="sample.yaml")


def test_kafka_stands_for_order_key_event_time_and_sources() -> None:
    found = pipeline({"kafka": {"partitions": 3}})
    validate_against_schema(found, COLUMNS)
    assert found.log.order == ("partition", "offset")
    assert found.log.key == ("kafka_key",)
    assert found.log.columns == {"kafka_key": 'decode("key")'}
    assert found.log.event_time.column == "timestamp"
    assert found.watermark is not None
    assert found.watermark.sources is not None
    assert (found.watermark.sources.column, found.watermark.sources.expected) == ("partition", ("0", "1", "2"))


def test_a_topic_may_have_many_partitions() -> None:
    """A list of columns has at most 64, and a topic has more partitions."""
    sources = pipeline({"kafka": {"partitions": 500}}).watermark
    assert sources is not None
    assert sources.sources is not None
    assert len(sources.sources.expected or ()) == 500


def test_the_keys_of_the_file_win() -> None:
    found = pipeline(
        {
            "kafka": {"partitions": 2, "topic": "topic"},
            "where": "topic = 'clicks'",
            "columns": {"user_id": "value ->> '$.user.id'", "at": "cast(value ->> '$.at' as bigint)"},
            "key": ["user_id"],
            "event_time": {"column": "at", "unit": "ms"},
        },
        {**BOUNDED, "sources": {"column": "partition", "expected": ["1"]}},
    )
    validate_against_schema(found, COLUMNS)
    assert found.log.order == ("topic", "partition", "offset")
    assert found.log.key == ("user_id",)
    assert set(found.log.columns or ()) == {"user_id", "at"}
    assert found.log.event_time.column == "at"
    assert found.watermark is not None
    assert found.watermark.sources is not None
    assert found.watermark.sources.expected == ("1",)


@pytest.mark.parametrize("over", [{}, {"over": "all"}])
def test_the_stored_form_is_the_same_pipeline(over: dict[str, str]) -> None:
    """The ledger stores the keys that `kafka` stands for, and `kafka`."""
    found = pipeline({"kafka": {"partitions": 3}, **over})
    again = pipeline_from_json(pipeline_to_json(found), source="the ledger")
    assert pipeline_to_json(again) == pipeline_to_json(found)
    assert spec_fingerprint(again) == spec_fingerprint(found)


@pytest.mark.parametrize("order", [["partition", "offset"], ["topic", "partition", "offset"]])
def test_the_order_of_kafka_without_sources_is_refused(order: list[str]) -> None:
    """By hand, 59 % of the records of such a log were late."""
    log = {"order": order, "over": "all", "event_time": "timestamp"}
    with pytest.raises(SpecError, match=r"log\.order: .* would be late .*; write log\.kafka: \{partitions: N\}"):
        validate_against_schema(pipeline(log), COLUMNS)
    sources = {"column": "partition", "expected": ["0", "1"]}
    validate_against_schema(pipeline(log, {**BOUNDED, "sources": sources}), COLUMNS)
    validate_against_schema(pipeline({**log, "order": ["timestamp", *order]}), COLUMNS)


ATLAS: Final = {"interval": {"size": 1, "unit": "hour"}, "pipeline": [{"$group": {"_id": None, "n": {"$sum": 1}}}]}
IDLE: Final = {"partitionIdleTimeout": {"size": 1, "unit": "hour"}}
STORM: Final = {"length": "1h", "slide": "1h"}
STREAMS: Final = {"column": "partition", "expected": ["0", "1"]}
TUMBLING: Final = {"tumbling": {"size": "1h"}}
ONE_CLOCK: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "ingestion": (
        {"watermark": {"kind": "ingestion", "every": "1m"}, "windows": TUMBLING},
        r"with watermark\.kind: ingestion .* write log\.order: \[day, partition, offset\] with log\.key",
    ),
    "idle time-out": (
        {"watermark": {**BOUNDED, "sources": {**STREAMS, "idle_timeout": "2h"}}, "windows": TUMBLING},
        r"with watermark\.sources\.idle_timeout .* write watermark\.sources: \{column: partition, expected",
    ),
    "no expected sources": (
        {"watermark": {**BOUNDED, "sources": {"column": "partition"}}, "windows": TUMBLING},
        "with watermark.sources without `expected`",
    ),
    "processing time": ({"windows": {**TUMBLING, "time": "processing"}}, "with time: processing"),
    "storm": ({"windows": {"storm": STORM}}, r"write windows\.storm\.streams: \{column: partition, expected"),
    "storm, no expected streams": (
        {"windows": {"storm": {**STORM, "streams": {"column": "partition"}}}}, "with the watermark of windows.storm"
    ),
    "storm on processing time": ({"windows": {"storm": {**STORM, "time": "processing"}}}, "with time: processing"),
    "atlas": (
        {"windows": {"atlas": {"$tumblingWindow": ATLAS, "partition": "partition", "source": IDLE}}},
        r"with windows\.atlas",
    ),
}  # fmt: skip
PER_PARTITION: Final[dict[str, dict[str, Any]]] = {
    "ticks": {"watermark": {**BOUNDED, "emit": {"every": "1m"}}, "windows": TUMBLING},
    "storm with all streams": {"windows": {"storm": {**STORM, "streams": STREAMS}}},
    "count windows": {"windows": {"count": {"size": 2}}},
    "count windows, ingestion": {"watermark": {"kind": "ingestion", "every": "1s"}, "windows": {"count": {"size": 2}}},
}


def clocked(parts: dict[str, Any], *, partitions: int) -> Pipeline:
    log = {"table": "m", "slice": {"by": "day"}, "kafka": {"partitions": partitions}, "arrival_time": "day"}
    aggregates: dict[str, Any] = {} if "atlas" in parts["windows"] else {"aggregates": {"n": {"count": {}}}}
    return build_pipeline({"pipeline": "sample", "log": log, **aggregates, **parts}, source="sample.yaml")


@pytest.mark.parametrize("name", ONE_CLOCK)
def test_one_clock_for_all_partitions_is_refused(name: str) -> None:
    """The clock is at the end of the slice before the second partition begins: 66 of 144 records were late."""
    parts, message = ONE_CLOCK[name]
    with pytest.raises(SpecError, match=message):
        validate_against_schema(clocked(parts, partitions=2), COLUMNS)
    validate_against_schema(clocked(parts, partitions=1), COLUMNS)


@pytest.mark.parametrize("name", PER_PARTITION)
def test_a_watermark_of_each_partition_is_allowed(name: str) -> None:
    validate_against_schema(clocked(PER_PARTITION[name], partitions=2), COLUMNS)


WRONG: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "no partitions": ({"kafka": {}}, r"log\.kafka\.partitions: is missing"),
    "no partition": ({"kafka": {"partitions": 0}}, r"log\.kafka\.partitions: .*found 0"),
    "no mapping": ({"kafka": 3}, r"log\.kafka: expected a mapping"),
    "unknown key": ({"kafka": {"partitions": 3, "ofset": "o"}}, r"log\.kafka\.ofset: unknown key 'ofset'.*'offset'"),
    "another order": ({"kafka": {"partitions": 3}, "order": ["offset"]}, r"kafka has the order .*leave order out"),
    "columns are no mapping": ({"kafka": {"partitions": 3}, "columns": 3}, r"log\.columns: expected a mapping"),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors_have_the_path_of_the_key(name: str) -> None:
    log, message = WRONG[name]
    with pytest.raises(SpecError, match=message):
        pipeline(log)


def test_a_log_without_the_columns_of_kafka_is_refused() -> None:
    with pytest.raises(SpecError, match=r"log\.columns\.kafka_key: the log has no column 'key'"):
        validate_against_schema(pipeline({"kafka": {"partitions": 3}}), {"topic": "string", "day": "date"})
