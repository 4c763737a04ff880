"""The grammar of a pipeline file (DESIGN.md, section 4) as frozen models: what the file says, nothing derived.

The names of fields are the keys of the file; durations are milliseconds in Python (`size_ms`) and texts in the file
(`size: 1h`). `jobs.pipeline` reads files into these models and turns what is wrong with them into errors that name
the key.
"""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    StringConstraints,
    field_validator,
    model_serializer,
    model_validator,
)

from jobs.column_names import check_aggregate_names, check_apart
from jobs.cron import check_cron
from jobs.durations import Duration, PositiveDuration
from jobs.grammar import ColumnName, GrammarModel, not_yet, one_of, refuse_control_characters
from jobs.log_models import LogGrammar, ReadyGrammar, SliceGrammar, TimeColumn, Unit
from jobs.suggestions import did_you_mean

__all__ = [
    "AGGREGATE_KINDS",
    "AggregateGrammar",
    "LogGrammar",
    "Pipeline",
    "QualityGrammar",
    "ReadyGrammar",
    "Session",
    "SliceGrammar",
    "Sliding",
    "TimeColumn",
    "Tumbling",
    "Unit",
    "WatermarkGrammar",
    "WindowsGrammar",
]

MAX_PARALLELISM = 32_768  # Flink's bound on key groups
MAX_WINDOWS_PER_RECORD = 10_000_000


class WatermarkGrammar(GrammarModel):
    """How event time moves on: behind the greatest time seen by a bound, or right at it."""

    kind: Literal["bounded", "ascending"]
    out_of_orderness_ms: Duration | None = Field(default=None, alias="out_of_orderness")
    emit: Literal["every_record"] = "every_record"

    @field_validator("kind", mode="before")
    @classmethod
    def _later_kinds(cls, value: object) -> object:
        if value in {"legacy_bounded", "punctuated", "column", "ingestion"}:
            raise not_yet(f"kind: {value}", "allowed today: bounded, ascending")
        return value

    @field_validator("emit", mode="before")
    @classmethod
    def _later_emissions(cls, value: object) -> object:
        if value != "every_record" and (value == "commit" or isinstance(value, Mapping)):
            raise not_yet(f"emit: {value}", "allowed today: every_record")
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
            raise not_yet("a gap by column or function", "write one duration such as 30m")
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
            raise not_yet("time: processing", "allowed today: event")
        return value

    @field_validator("accumulation", mode="before")
    @classmethod
    def _accumulating_only(cls, value: object) -> object:
        if value in {"discarding", "retracting"}:
            raise not_yet(f"accumulation: {value}", "allowed today: accumulating")
        return value

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        one_of(self, ("tumbling", "sliding", "session"), "kind of window")
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
        return refuse_control_characters(value)


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
            raise not_yet(f"semantics: {value}", "allowed today: strict, flink")
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
