"""The `log` part of a pipeline file: the table of the event log, the meaning of its columns, and its slices."""

import re
from collections.abc import Mapping
from datetime import date, datetime
from typing import Annotated, ClassVar, Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, Field, Strict, StringConstraints, field_validator, model_validator

from jobs.durations import UNIT_MS, PositiveDuration, format_duration
from jobs.pipeline.models.column_names import check_derived_names, check_key_columns
from jobs.pipeline.models.distinct import DistinctGrammar
from jobs.pipeline.models.grammar import (
    Choice,
    ColumnName,
    Columns,
    GrammarModel,
    PlainName,
    UnitName,
    not_yet,
    refuse_control_characters,
    refuse_controls_but_lines,
)
from jobs.pipeline.models.kafka import KafkaGrammar, with_kafka_keys
from jobs.pipeline.models.ready import ReadyGrammar
from jobs.pipeline.models.upstream import SLICE_COLUMN, TABLES, Panes, is_log_table, order_of, with_upstream_keys
from jobs.plain_text import shortened, without_credentials
from windowlib.records.tables import WINDOW_OUTPUTS

CREDENTIALS = "has credentials; write the place alone and set them as variables (docs/how-to/storage.md)"
"""The end of the message for a URI with a user and a password."""


class TimeColumn(PlainName):
    """A column of times: of type TIMESTAMP if `unit` is None, else a number of units since 1970-01-01 UTC."""

    column: ColumnName
    unit: UnitName | None = None


FIRST_DAY, LAST_DAY = date(1, 1, 4), date(9999, 12, 28)
"""The first and last day with slices: three days inside Python's range, for neighbouring slices and time zones."""


def _check_iso(value: str) -> str:
    try:
        parsed = datetime.fromisoformat(value)
    except ValueError:
        raise ValueError(
            f"expected a date such as 2013-02-08 or a time such as 2013-02-08T05:15, found {value!r}"
        ) from None
    if parsed.tzinfo is not None:
        raise ValueError(f"{value!r} has a UTC offset; write the time without one, in the time zone of `timezone`")
    if not FIRST_DAY <= parsed.date() <= LAST_DAY:
        raise ValueError(
            f"{value!r} is outside of {FIRST_DAY} to {LAST_DAY}, the days that can have slices; leave the key out if "
            "the log has no such bound"
        )
    return value


PIPELINE_NAME = r"^[a-z][a-z0-9_]{0,62}$"
IsoText = Annotated[str, AfterValidator(_check_iso)]


def _check_zone(value: str) -> str:
    try:
        ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(
            f"unknown time zone {shortened(value)!r}; write a name of the IANA database, such as UTC or Europe/Berlin"
        ) from None
    return value


DATE_AND_HOUR = 2
MOST_SLICE_COLUMNS = 4
"""A year, a month, a day and an hour."""

_PATTERN = re.compile(
    r"yyyy[^A-Za-z0-9]?MM[^A-Za-z0-9]?dd(?P<hour>[^A-Za-z0-9]?HH(?P<minute>[^A-Za-z0-9]?mm)?)?", re.ASCII
)


class SliceGrammar(GrammarModel):
    """How the log is cut into slices by arrival: days of a time zone, or periods of hours or minutes in UTC.

    `by` is `commits`, a column, or several partition columns: a date and an hour, or a year, a month, a day and perhaps
    an hour. `format` is the pattern of the values of a text or integer column, where the values do not tell it
    themselves.
    """

    by: ColumnName | Annotated[tuple[ColumnName, ...], Strict(strict=False), Field(min_length=1, max_length=4)]
    format: str | None = None
    every_ms: PositiveDuration = Field(default=UNIT_MS["d"], alias="every")
    timezone: Annotated[str, AfterValidator(_check_zone)] = "UTC"
    first: IsoText | None = None
    last: IsoText | None = None

    @property
    def cut(self) -> tuple[int, str]:
        """The length and the time zone of the slices: grammars with equal ones cut time alike."""
        return self.every_ms, self.timezone

    def is_made_of(self, other: "SliceGrammar") -> bool:
        """Return whether each slice is one of another grammar, or several whole ones."""
        return self.every_ms % other.every_ms == 0 and self.timezone == other.timezone

    @field_validator("by", mode="before")
    @classmethod
    def _check_columns(cls, value: object) -> object:
        if not isinstance(value, str) and not (isinstance(value, list) and 1 <= len(value) <= MOST_SLICE_COLUMNS):
            raise ValueError(
                "expected commits, a column, or a list of partition columns such as [dt, hour], [year, month, day] or "
                f"[year, month, day, hour]; found {value!r}"
            )
        if isinstance(value, list) and len({str(name).lower() for name in value}) != len(value):
            raise ValueError(f"names a column twice: {value!r}")
        return value

    @field_validator("format")
    @classmethod
    def _check_format(cls, value: str | None) -> str | None:
        if value is not None and not _PATTERN.fullmatch(value):
            raise ValueError(
                "expected yyyy, MM and dd, then perhaps HH and mm, in this order, with at most one separator between "
                f"two of them, such as yyyyMMdd, yyyyMMddHH or yyyy/MM/dd; found {shortened(value)!r}"
            )
        return value

    @model_validator(mode="after")
    def _format_fits(self) -> Self:
        if self.is_by_commits and self.format is not None:
            raise ValueError(
                f"by: commits takes no format, found {self.format}; a column of this name is by: [commits]"
            )
        count = len(self.columns)
        match = None if self.format is None else _PATTERN.fullmatch(self.format)
        has_hour, has_minute = (match is not None and match[name] is not None for name in ("hour", "minute"))
        if match is not None and (count > DATE_AND_HOUR or (count == DATE_AND_HOUR and has_hour)):
            raise ValueError(
                f"format: {self.format} does not fit by: {list(self.columns)}; it is the format of the one column, or "
                "of the dates of [date, hour]"
            )
        if count <= 1 and match is None:
            return self
        finest = "m" if has_minute else "h" if has_hour or count in (DATE_AND_HOUR, MOST_SLICE_COLUMNS) else "d"
        if self.every_ms < UNIT_MS[finest]:
            what = f"by: {list(self.columns)}" if match is None else f"format: {self.format}"
            raise ValueError(
                f"{what} does not tell slices of {format_duration(self.every_ms)} apart; write every: 1{finest} or "
                "longer"
            )
        return self

    @model_validator(mode="after")
    def _check_period(self) -> Self:
        day_ms, every = UNIT_MS["d"], format_duration(self.every_ms)
        if self.every_ms > day_ms:
            raise not_yet(f"slices longer than a day (every: {every})", "write every: 1d")
        if day_ms % self.every_ms or self.every_ms % UNIT_MS["m"]:
            raise ValueError(
                f"every: {every} does not divide a day into equal slices of whole minutes; write for example 1d, 12h, "
                "6h, 1h, 30m, 15m, 5m or 1m"
            )
        if self.every_ms < day_ms and self.timezone != "UTC":
            raise ValueError(
                f"slices of {every} are cut in UTC, found timezone: {self.timezone}; leave timezone out, because when "
                "clocks change in a time zone, an hour occurs twice or not at all"
            )
        if self.first and self.last and datetime.fromisoformat(self.first) > datetime.fromisoformat(self.last):
            raise ValueError(
                f"first: {self.first} is after last: {self.last}; both are slices of the pipeline, last included"
            )
        return self

    @property
    def is_by_commits(self) -> bool:
        """Whether a record belongs to the slice of its commit's time. `by: [commits]` is a column of this name."""
        return self.by == "commits"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that assign a record to its slice; none if the commits do."""
        if self.is_by_commits:
            return ()
        return (self.by,) if isinstance(self.by, str) else self.by

    @property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.timezone)


def _normal_expression(value: str) -> str:
    """Return the normal form of an expression, so that blanks and the case of keywords are no part of the spec."""
    from jobs.pipeline.models.expressions.syntax import (
        normal_text,
    )  # sqlglot takes 0.2 s, and few files have expressions

    return normal_text(value)


Expression = Annotated[str, AfterValidator(refuse_controls_but_lines), AfterValidator(_normal_expression)]
"""An expression over the columns of the log (docs/reference/pipelines.md, "Derived columns and the filter")."""


LogFormat = Literal["delta", "parquet", "iceberg"]
"""What the log is: a Delta table, a directory of Parquet files with Hive partitions, or an Iceberg table."""
PartitionType = Literal["string", "date", "tinyint", "smallint", "int", "bigint"]
HISTORY = "^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$"


class LogGrammar(Choice):
    """The event log: its table, the meaning of its columns, columns derived from them, and which records are read.

    `partitions` has the types of partition columns of Parquet files, whose paths have texts; others are texts. With
    `changes`, the log has the rows that were inserted into a table, whatever became of them. `history` names the
    commits of a table that was restored from a backup and written to since. With `pipeline`, the log is a table of
    another pipeline of the lake, as it is published (`jobs.pipeline.models.upstream`).
    """

    ONE_OF: ClassVar[tuple[str, ...]] = ("key", "over")
    WHAT = "of `key: [columns]` and `over: all` (one set of windows for all records)"

    table: Annotated[str, StringConstraints(min_length=1, max_length=2_000), AfterValidator(refuse_control_characters)]
    format: LogFormat = "delta"
    partitions: Mapping[ColumnName, PartitionType] | None = None
    changes: Literal["inserts"] | None = None
    history: Annotated[str, StringConstraints(pattern=HISTORY)] | None = None
    pipeline: Annotated[str, StringConstraints(pattern=PIPELINE_NAME)] | None = None
    panes: Panes | None = None
    columns: Annotated[Mapping[str, Expression], Field(max_length=64)] | None = None
    where: Expression | None = None
    distinct: DistinctGrammar | None = None
    kafka: KafkaGrammar | None = None
    key: Columns | None = None
    over: Literal["all"] | None = None
    event_time: TimeColumn
    arrival_time: TimeColumn | None = None
    record_id: ColumnName | None = None
    slice: SliceGrammar
    ready: ReadyGrammar | None = None
    order: Literal["commits", "appended"] | Columns = "commits"

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, value: object) -> object:
        return with_upstream_keys(with_kafka_keys(value))

    @field_validator("key")
    @classmethod
    def _check_key(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return value if value is None else check_key_columns(value)

    @field_validator("columns")
    @classmethod
    def _check_derived(cls, value: Mapping[str, str] | None) -> Mapping[str, str] | None:
        return None if value is None else check_derived_names(value)

    @field_validator("order", mode="before")
    @classmethod
    def _commits_or_columns(cls, value: object) -> object:
        if value not in ("commits", "appended") and not (isinstance(value, list) and value):
            raise ValueError(
                f"expected commits, appended, or a list of columns that order all records; found {value!r}"
            )
        return value

    @field_validator("table")
    @classmethod
    def _stay_inside(cls, value: str) -> str:
        masked = without_credentials(value)
        if masked != value:
            raise ValueError(f"{shortened(masked)!r} {CREDENTIALS}")
        if "://" not in value and ".." in value.split("/"):
            raise ValueError(
                f"must not contain '..', found {value!r}; write a path relative to the lake, an absolute path or a URI"
            )
        return value

    @model_validator(mode="after")
    def _place_is_stored(self) -> Self:
        """Refuse derived columns where the place of a record in the log is decided before its values are read."""
        derived = self.columns or {}
        named = [("slice.by", name) for name in self.slice.columns]
        named += [("order", name) for name in self.order_columns or ()]
        for key, name in named:
            if name in derived:
                raise ValueError(f"{key}: column {name!r} is derived; name a column that the log stores")
        return self

    @model_validator(mode="after")
    def _distinct_has_arrivals(self) -> Self:
        """Refuse a bound within a slice if nothing tells when inside the slice a record arrived."""
        distinct, every_ms = self.distinct, self.slice.every_ms
        if distinct is not None and self.arrival_time is None and distinct.within_ms < every_ms:
            raise ValueError(
                f"distinct: within: {format_duration(distinct.within_ms)} is shorter than a slice "
                f"({format_duration(every_ms)}), and without arrival_time only the slice of a record tells when it "
                f"arrived; write within: {format_duration(every_ms)} or longer, or name arrival_time"
            )
        return self

    @model_validator(mode="after")
    def _kafka_has_its_order(self) -> Self:
        if self.kafka is not None and self.order != self.kafka.order:
            order = self.order if isinstance(self.order, str) else list(self.order)
            raise ValueError(f"order: found {order}, and kafka has the order {list(self.kafka.order)}; leave order out")
        return self

    @model_validator(mode="after")
    def _fits_a_pipeline(self) -> Self:
        """Refuse what the published rows of a pipeline do not have."""
        upstream = self.pipeline
        if self.panes is not None and (upstream is None or self.table != WINDOW_OUTPUTS):
            raise ValueError(f"panes: found {self.panes}; only the {WINDOW_OUTPUTS} of a `pipeline` have panes")
        if upstream is None:
            return self
        if not is_log_table(self.table):
            raise ValueError(f"table: found {self.table!r}; the tables of a pipeline that can be a log are {TABLES}")
        if self.slice.by != SLICE_COLUMN or self.slice.format is not None:
            raise ValueError("slice: the slices are those of the other pipeline; leave out by and format")
        if self.order_columns != (order := order_of(self.table, self.panes)):
            stated = self.order if isinstance(self.order, str) else list(self.order)
            raise ValueError(f"order: found {stated}, and published rows have the order {list(order)}; leave order out")
        if self.ready is not None:
            raise ValueError(f"ready: a slice is complete when pipeline {upstream} has published it; leave ready out")
        own = [name for name in ("partitions", "changes", "history", "kafka") if getattr(self, name) is not None]
        own += [] if self.format == "delta" else ["format"]
        if own:
            raise ValueError(f"{own[0]}: the log is the published rows of pipeline {upstream}; leave {own[0]} out")
        return self

    @model_validator(mode="after")
    def _fits_a_table(self) -> Self:
        """Refuse what a table of this format does not have."""
        if self.format == "parquet":
            return self
        if self.partitions is not None:
            raise ValueError("partitions: a table has the types of its partition columns; leave it out")
        if self.changes is not None and self.format == "iceberg":
            raise ValueError(f"changes: found {self.changes}, but only a Delta table has a change data feed")
        lacks = "an Iceberg table does not have" if self.format == "iceberg" else ""
        lacks = "the change data feed does not have" if self.changes is not None else lacks
        if lacks and self.order == "commits":
            with_key = "format: iceberg" if self.format == "iceberg" else "changes: inserts"
            raise ValueError(
                f"order: commits needs row tracking, which {lacks}; with {with_key} write order: appended, or name the "
                "columns that order the records of a slice"
            )
        return self

    @model_validator(mode="after")
    def _fits_a_directory(self) -> Self:
        """Refuse what only a table with commits can tell."""
        if self.format != "parquet":
            return self
        why = "a directory of Parquet files has no commits"
        for name in ("changes", "history"):
            if (value := getattr(self, name)) is not None:
                raise ValueError(f"{name}: found {value}, but {why}; leave it out")
        if self.order_columns is None:
            raise ValueError(
                f"order: found {self.order}, but {why}, so the order in which its records were appended is not known; "
                "name the columns that order the records of a slice, such as order: [received_at, id]"
            )
        if self.slice.is_by_commits:
            raise ValueError(f"slice: by: commits, but {why}; name partition columns, or a column of times")
        ready = self.ready
        if ready is not None and ready.has_condition and any(leaf.newer_commit for leaf in ready.leaves()):
            raise ValueError(
                f"ready: newer_commit: {why}; write after, min_records, producer or marker, such as "
                "marker: done/{slice_id}"
            )
        return self

    @property
    def shown(self) -> str:
        """The log as messages name it."""
        return self.table if self.pipeline is None else f"{self.pipeline}/{self.table}"

    @property
    def order_columns(self) -> tuple[str, ...] | None:
        """The columns that order the records; None if the commits order them."""
        return None if isinstance(self.order, str) else self.order

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The key columns in order; empty for `over: all`."""
        return self.key or ()
