"""The `log.kafka` part of a pipeline file: a log as Kafka's connectors write it, one row for each message.

The part stands for other keys, which it fills in: `log.order`, `log.key`, `log.event_time`, `log.columns` and
`watermark.sources`. A key that the file has as well is the file's. So the spec of a run has all of them.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import Field

from jobs.pipeline.models.grammar import ColumnName, GrammarModel

KEY: Final = "kafka_key"
"""The derived column with the key of a message as text."""
PARTITIONS: Final = frozenset({"partition", "kafka_partition", "_kafka_partition"})
OFFSETS: Final = frozenset({"offset", "kafka_offset", "_kafka_offset"})
TOPICS: Final = frozenset({"topic", "kafka_topic", "_kafka_topic"})


class KafkaGrammar(GrammarModel):
    """The number of partitions, and the columns of a message. `topic` is needed if the log has several topics."""

    partitions: Annotated[int, Field(ge=1, le=10_000)]
    topic: ColumnName | None = None
    partition: ColumnName = "partition"
    offset: ColumnName = "offset"
    timestamp: ColumnName = "timestamp"
    key: ColumnName = "key"

    @property
    def order(self) -> tuple[str, ...]:
        """The columns that order the messages."""
        return (*(() if self.topic is None else (self.topic,)), self.partition, self.offset)


def with_kafka_keys(log: object) -> object:
    """Return the `log` part of a file with the keys for which `kafka` stands. Any other value is returned as it is."""
    kafka = _kafka_of(log)
    if kafka is None or not isinstance(log, Mapping):
        return log
    filled: dict[str, Any] = {"order": list(kafka.order), "event_time": {"column": kafka.timestamp}}
    if "key" not in log and "over" not in log:
        quoted = kafka.key.replace('"', '""')
        filled |= {"key": [KEY], "columns": {KEY: f'decode("{quoted}")'} | dict(log.get("columns") or {})}
        return {**filled, **{key: value for key, value in log.items() if key != "columns"}}
    return {**filled, **log}


def with_kafka_sources(document: object) -> object:
    """Return a whole file in which each partition is a source of the watermark, if `log.kafka` is in the file."""
    if not isinstance(document, Mapping):
        return document
    kafka, watermark = _kafka_of(document.get("log")), document.get("watermark")
    if kafka is None or not isinstance(watermark, Mapping) or "sources" in watermark:
        return document
    if watermark.get("kind") == "ingestion":  # the clock alone moves this watermark
        return document
    sources = {"column": kafka.partition, "expected": [str(number) for number in range(kafka.partitions)]}
    return {**document, "watermark": {**watermark, "sources": sources}}


def _kafka_of(log: object) -> KafkaGrammar | None:
    """Return the part `kafka`; None without one, or if it has an error, which the field reports with its path."""
    kafka = log.get("kafka") if isinstance(log, Mapping) else None
    if kafka is None or (isinstance(log, Mapping) and not isinstance(log.get("columns") or {}, Mapping)):
        return None
    try:
        return KafkaGrammar.model_validate(kafka)
    except ValueError:
        return None


def is_partition_by_partition(order: tuple[str, ...]) -> bool:
    """Return whether an order puts all messages of a partition before those of the next one."""
    inner = order[1:] if order and order[0].lower() in TOPICS else order
    return len(inner) > 1 and inner[0].lower() in PARTITIONS and inner[1].lower() in OFFSETS
