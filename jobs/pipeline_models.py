"""The grammar of a pipeline file (DESIGN.md, section 4) as frozen models: what the file says, nothing derived.

The names of fields are the keys of the file; durations are milliseconds in Python (`size_ms`) and texts in the file
(`size: 1h`). `jobs.pipeline` reads files into these models and turns what is wrong with them into errors that name
the key.
"""

import unicodedata
from collections.abc import Mapping
from datetime import date, datetime
from enum import Enum
from typing import Annotated, Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    Strict,
    StringConstraints,
    field_validator,
    model_serializer,
    model_validator,
)

from jobs.column_names import check_aggregate_names, check_apart, check_key_columns
from jobs.cron import check_cron
from jobs.durations import UNIT_MS, Duration, PositiveDuration, format_duration
from jobs.suggestions import did_you_mean

MAX_PARALLELISM = 32_768  # Flink's bound on key groups
MAX_WINDOWS_PER_RECORD = 10_000_000


class GrammarModel(BaseModel):
    """A part of a pipeline file: unknown keys refused, nothing converted silently, no change after reading."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, populate_by_name=False, validate_default=False)


def _refuse_line_breaks(value: str) -> str:
    if any(unicodedata.category(character) == "Cc" for character in value):
        raise ValueError(f"must not hold control characters, found {value!r}")
    return value


ColumnName = Annotated[str, StringConstraints(min_length=1, max_length=255), AfterValidator(_refuse_line_breaks)]
Columns = Annotated[tuple[ColumnName, ...], Strict(strict=False), Field(min_length=1, max_length=64)]


def _not_yet(what: str, instead: str) -> ValueError:
    return ValueError(f"{what} is part of the grammar but not built yet; {instead}")


class Unit(Enum):
    """What an integer time counts since 1970-01-01T00:00:00Z."""

    S = "s"
    MS = "ms"
    US = "us"
    NS = "ns"


def _unit(value: object) -> object:
    try:
        return Unit(value)
    except ValueError:
        raise ValueError(f"unknown unit {value!r}; allowed: {', '.join(unit.value for unit in Unit)}") from None


class TimeColumn(GrammarModel):
    """A column that holds an instant: a TIMESTAMP when `unit` is None, else a number of units since the epoch."""

    column: ColumnName
    unit: Annotated[Unit, BeforeValidator(_unit)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _accept_plain_name(cls, value: object) -> object:
        return {"column": value} if isinstance(value, str) else value


def _iso_text(value: object) -> object:
    """YAML reads a bare 2013-01-01 as a date; inside it is a text, cut to the slice's period later."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(timespec="minutes")
    return value.isoformat() if isinstance(value, date) else value


def _check_iso(value: str) -> str:
    try:
        parsed = datetime.fromisoformat(value)
    except ValueError:
        raise ValueError(
            f"expected a date such as 2013-02-08 or a time such as 2013-02-08T05:15, found {value!r}"
        ) from None
    if parsed.tzinfo is not None:
        raise ValueError(f"{value!r} carries a UTC offset; write the time in the slice's own `timezone`")
    return value


IsoText = Annotated[str, BeforeValidator(_iso_text), AfterValidator(_check_iso)]


def _check_zone(value: str) -> str:
    try:
        ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(
            f"unknown time zone {value!r}; write a name of the IANA list such as UTC or Europe/Berlin"
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
            raise _not_yet("slicing by commits", "name the partition column of the log that says when a record arrived")
        return value

    @model_validator(mode="after")
    def _check_period(self) -> Self:
        day_ms, every = UNIT_MS["d"], format_duration(self.every_ms)
        if self.every_ms > day_ms:
            raise _not_yet(f"slices longer than a day (every: {every})", "write every: 1d")
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
        _one_of(self, ("after_ms", "newer_commit", "marker", "min_records"), "sign of completeness")
        return self


class LogGrammar(GrammarModel):
    """The event log: where it is, and what its columns mean."""

    table: Annotated[str, StringConstraints(min_length=1, max_length=2_000), AfterValidator(_refuse_line_breaks)]
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
        _one_of(self, ("key", "over"), "of `key: [columns]` and `over: all` (one set of windows for all records)")
        return self

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The key columns in order; none for `over: all`."""
        return self.key or ()


class WatermarkGrammar(GrammarModel):
    """How event time moves on: behind the greatest time seen by a bound, or right at it."""

    kind: Literal["bounded", "ascending"]
    out_of_orderness_ms: Duration | None = Field(default=None, alias="out_of_orderness")
    emit: Literal["every_record"] = "every_record"

    @field_validator("kind", mode="before")
    @classmethod
    def _later_kinds(cls, value: object) -> object:
        if value in {"legacy_bounded", "punctuated", "column", "ingestion"}:
            raise _not_yet(f"kind: {value}", "allowed today: bounded, ascending")
        return value

    @field_validator("emit", mode="before")
    @classmethod
    def _later_emissions(cls, value: object) -> object:
        if value != "every_record" and (value == "commit" or isinstance(value, Mapping)):
            raise _not_yet(f"emit: {value}", "allowed today: every_record")
        return value

    @model_validator(mode="after")
    def _bound_fits_kind(self) -> Self:
        if self.kind == "bounded" and self.out_of_orderness_ms is None:
            raise ValueError("kind: bounded needs out_of_orderness, how far records may be out of order, such as 6h")
        if self.kind == "ascending" and self.out_of_orderness_ms is not None:
            raise ValueError("kind: ascending takes no out_of_orderness; write kind: bounded to allow disorder")
        return self


class Tumbling(GrammarModel):
    """Windows of one size side by side."""

    size_ms: PositiveDuration = Field(alias="size")
    offset_ms: Duration = Field(default=0, alias="offset")


class Sliding(GrammarModel):
    """A window of `size` every `slide`; they overlap where slide < size and leave gaps where slide > size."""

    size_ms: PositiveDuration = Field(alias="size")
    slide_ms: PositiveDuration = Field(alias="slide")
    offset_ms: Duration = Field(default=0, alias="offset")

    @model_validator(mode="after")
    def _bounded_fan_out(self) -> Self:
        windows = -(-self.size_ms // self.slide_ms)
        if windows > MAX_WINDOWS_PER_RECORD:
            raise ValueError(
                f"every record would be in {windows:,} windows (size / slide); at most {MAX_WINDOWS_PER_RECORD:,} "
                "are allowed"
            )
        return self


class Session(GrammarModel):
    """One window per burst of activity; a silence of `gap` ends it."""

    gap_ms: PositiveDuration = Field(alias="gap")

    @field_validator("gap_ms", mode="before")
    @classmethod
    def _static_gap(cls, value: object) -> object:
        if isinstance(value, Mapping):
            raise _not_yet("a gap by column or function", "write one duration such as 30m")
        return value


class WindowsGrammar(GrammarModel):
    """Which windows a record belongs to, and how long each still accepts records."""

    tumbling: Tumbling | None = None
    sliding: Sliding | None = None
    session: Session | None = None
    time: Literal["event"] = "event"
    allowed_lateness_ms: Duration = Field(default=0, alias="allowed_lateness")
    accumulation: Literal["accumulating"] = "accumulating"

    @field_validator("time", mode="before")
    @classmethod
    def _event_time_only(cls, value: object) -> object:
        if value == "processing":
            raise _not_yet("time: processing", "allowed today: event")
        return value

    @field_validator("accumulation", mode="before")
    @classmethod
    def _accumulating_only(cls, value: object) -> object:
        if value in {"discarding", "retracting"}:
            raise _not_yet(f"accumulation: {value}", "allowed today: accumulating")
        return value

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        _one_of(self, ("tumbling", "sliding", "session"), "kind of window")
        return self

    @property
    def assigner(self) -> Tumbling | Sliding | Session:
        """The one kind of window that the file names."""
        chosen = self.tumbling or self.sliding or self.session
        assert chosen is not None, "checked when it was built"
        return chosen


AGGREGATE_KINDS = ("count", "sum", "min", "max", "avg", "variance", "first", "last", "collect_list")


class AggregateGrammar(GrammarModel):
    """One aggregate: `count` has no column, every other kind has one."""

    kind: str
    column: ColumnName | None

    @model_validator(mode="before")
    @classmethod
    def _from_one_entry(cls, value: object) -> object:
        form = "write {kind: column}, such as {sum: amount}, or {count: {}}"
        if not isinstance(value, Mapping) or len(value) != 1:
            raise ValueError(f"{form}; found {value!r}")
        [(kind, column)] = value.items()
        if kind not in AGGREGATE_KINDS:
            raise ValueError(
                f"unknown aggregate {kind!r}; allowed: "
                f"{', '.join(AGGREGATE_KINDS)}{did_you_mean(str(kind), AGGREGATE_KINDS)}"
            )
        if kind == "count" and column == {}:
            return {"kind": kind, "column": None}
        if kind == "count":
            raise ValueError(f"count takes no column, it counts records: write {{count: {{}}}}; found {column!r}")
        if not isinstance(column, str):
            raise ValueError(f"{kind} needs the name of a column: {form}; found {column!r}")  # noqa: TRY004  (pydantic takes ValueError)
        return {"kind": kind, "column": column}

    @model_serializer(mode="wrap")
    def _as_one_entry(self, _handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        return {self.kind: {} if self.column is None else self.column}


class QualityGrammar(GrammarModel):
    """The suite that judges every run, and the severity from which a failed check stops publication."""

    suite: str
    fail_on: Literal["critical", "warning", "info"] = "critical"

    @field_validator("suite")
    @classmethod
    def _inside_expectations(cls, value: str) -> str:
        parts = value.split("/")
        if parts[0] != "expectations" or not value.endswith(".json") or {"..", ".", ""} & set(parts) or "\\" in value:
            raise ValueError(
                f"must be a .json file below expectations/, such as expectations/flights.json; found {value!r}"
            )
        return _refuse_line_breaks(value)


class Pipeline(GrammarModel):
    """One pipeline file. `source` is the file it was read from, for messages; it is no part of the pipeline."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,62}$")] = Field(alias="pipeline")
    log: LogGrammar
    watermark: WatermarkGrammar
    windows: WindowsGrammar
    aggregates: Mapping[str, AggregateGrammar]
    quality: QualityGrammar | None = None
    schedule: Annotated[str, AfterValidator(check_cron)] | None = None
    semantics: Literal["strict", "flink"] = "strict"
    owner: str | None = None
    description: str | None = None
    max_parallelism: Annotated[int, Field(ge=1, le=MAX_PARALLELISM)] = 128

    _source: str = PrivateAttr(default="")

    @field_validator("aggregates")
    @classmethod
    def _check_names(cls, value: Mapping[str, AggregateGrammar]) -> Mapping[str, AggregateGrammar]:
        return check_aggregate_names(value)

    @model_validator(mode="after")
    def _names_apart(self) -> Self:
        check_apart(self.log.key_columns, self.aggregates)
        return self

    @field_validator("semantics", mode="before")
    @classmethod
    def _later_profiles(cls, value: object) -> object:
        if value in {"storm", "mongodb", "beam"}:
            raise _not_yet(f"semantics: {value}", "allowed today: strict, flink")
        return value

    @property
    def source(self) -> str:
        """Where the pipeline was read from, such as `pipelines/flights.yaml`."""
        return self._source or f"pipeline {self.name}"

    def read_from(self, source: str) -> "Pipeline":
        """Return the same pipeline, with `source` named in its errors."""
        copy = self.model_copy()
        copy._source = source  # noqa: SLF001  (a copy of ours)
        return copy


def _one_of(model: GrammarModel, names: tuple[str, ...], what: str) -> None:
    """Refuse a model that has none or several of the given fields."""
    fields = type(model).model_fields
    keys = {name: fields[name].alias or name for name in names}
    given = [keys[name] for name in names if getattr(model, name) is not None]
    if len(given) != 1:
        found = f"found {' and '.join(given)}" if given else "found none of them"
        raise ValueError(f"needs exactly one {what}; allowed: {', '.join(keys.values())}; {found}")
