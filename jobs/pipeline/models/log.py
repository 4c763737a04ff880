"""The `log` part of a pipeline file: where the event log is, what its columns mean, how it is cut into slices."""

from datetime import date, datetime
from typing import Annotated, Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, Field, StringConstraints, field_validator, model_validator

from jobs.durations import UNIT_MS, Duration, PositiveDuration, format_duration
from jobs.pipeline.models.column_names import check_key_columns
from jobs.pipeline.models.grammar import (
    ColumnName,
    Columns,
    GrammarModel,
    UnitName,
    not_yet,
    one_of,
    refuse_control_characters,
)
from jobs.plain_text import shortened


class TimeColumn(GrammarModel):
    """A column that holds an instant: a TIMESTAMP when `unit` is None, else a number of units since the epoch."""

    column: ColumnName
    unit: UnitName | None = None

    @model_validator(mode="before")
    @classmethod
    def _accept_plain_name(cls, value: object) -> object:
        return {"column": value} if isinstance(value, str) else value


FIRST_DAY, LAST_DAY = date(1, 1, 4), date(9999, 12, 28)
"""The days of which slices can be made: Python's, less three at either end for neighbours and offsets of time zones."""


def _check_iso(value: str) -> str:
    try:
        parsed = datetime.fromisoformat(value)
    except ValueError:
        raise ValueError(
            f"expected a date such as 2013-02-08 or a time such as 2013-02-08T05:15, found {value!r}"
        ) from None
    if parsed.tzinfo is not None:
        raise ValueError(f"{value!r} carries a UTC offset; write the time in the slice's own `timezone`")
    if not FIRST_DAY <= parsed.date() <= LAST_DAY:
        raise ValueError(
            f"{value!r} is outside of {FIRST_DAY} to {LAST_DAY}, the days of which slices can be made; leave it out if "
            "the log has no such bound"
        )
    return value


IsoText = Annotated[str, AfterValidator(_check_iso)]


def _check_zone(value: str) -> str:
    try:
        ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(
            f"unknown time zone {shortened(value)!r}; write a name of the IANA list such as UTC or Europe/Berlin"
        ) from None
    return value


class SliceGrammar(GrammarModel):
    """How the log is cut by arrival: every day in a time zone, or every so many hours or minutes in UTC."""

    by: ColumnName
    every_ms: PositiveDuration = Field(default=UNIT_MS["d"], alias="every")
    timezone: Annotated[str, AfterValidator(_check_zone)] = "UTC"
    first: IsoText | None = None
    last: IsoText | None = None

    @field_validator("by")
    @classmethod
    def _refuse_commits(cls, value: str) -> str:
        if value == "commits":
            raise not_yet("slicing by commits", "name the partition column of the log that says when a record arrived")
        return value

    @model_validator(mode="after")
    def _check_period(self) -> Self:
        day_ms, every = UNIT_MS["d"], format_duration(self.every_ms)
        if self.every_ms > day_ms:
            raise not_yet(f"slices longer than a day (every: {every})", "write every: 1d")
        if day_ms % self.every_ms or self.every_ms % UNIT_MS["m"]:
            raise ValueError(
                f"every: {every} does not divide a day into whole minutes; write 1d, 12h, 6h, 1h, 30m, 15m, 5m, 1m "
                "or the like"
            )
        if self.every_ms < day_ms and self.timezone != "UTC":
            raise ValueError(
                f"slices of {every} are cut in UTC, found timezone: {self.timezone}; where clocks change, an hour "
                "comes twice or never"
            )
        if self.first and self.last and datetime.fromisoformat(self.first) > datetime.fromisoformat(self.last):
            raise ValueError(
                f"first: {self.first} comes after last: {self.last}; both are slices of the pipeline, the last one "
                "included"
            )
        return self

    @property
    def zone(self) -> ZoneInfo:
        """The time zone in which days begin."""
        return ZoneInfo(self.timezone)


class ReadyGrammar(GrammarModel):
    """When a slice that is over is also complete: one of four signs, and how long to wait for it before giving up."""

    after_ms: Duration | None = Field(default=None, alias="after")
    newer_commit: Literal[True] | None = None
    marker: ColumnName | None = None
    min_records: Annotated[int, Field(ge=1)] | None = None
    timeout_ms: PositiveDuration | None = Field(default=None, alias="timeout")

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        one_of(self, ("after_ms", "newer_commit", "marker", "min_records"), "sign of completeness")
        return self


class LogGrammar(GrammarModel):
    """The event log: where it is, and what its columns mean."""

    table: Annotated[str, StringConstraints(min_length=1, max_length=2_000), AfterValidator(refuse_control_characters)]
    key: Columns | None = None
    over: Literal["all"] | None = None
    event_time: TimeColumn
    arrival_time: TimeColumn | None = None
    record_id: ColumnName | None = None
    slice: SliceGrammar
    ready: ReadyGrammar | None = None
    order: Literal["commits"] | Columns = "commits"

    @field_validator("key")
    @classmethod
    def _check_key(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return value if value is None else check_key_columns(value)

    @field_validator("order", mode="before")
    @classmethod
    def _commits_or_columns(cls, value: object) -> object:
        if value != "commits" and not (isinstance(value, list) and value):
            raise ValueError(f"expected commits, or a list of columns that are a total order; found {value!r}")
        return value

    @field_validator("table")
    @classmethod
    def _stay_inside(cls, value: str) -> str:
        if "://" not in value and ".." in value.split("/"):
            raise ValueError(
                f"must not climb with '..', found {value!r}; write a path below the lake, an absolute path or a URI"
            )
        return value

    @model_validator(mode="after")
    def _keyed_or_over_all(self) -> Self:
        one_of(self, ("key", "over"), "of `key: [columns]` and `over: all` (one set of windows for all records)")
        return self

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The key columns in order; none for `over: all`."""
        return self.key or ()
