"""The `windows` part of a pipeline file: the windows of a record, when they fire, and which records they keep."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, Strict, ValidationInfo, model_serializer, model_validator

from jobs.durations import Duration, PositiveDuration, SignedDuration, format_duration
from jobs.pipeline.models.atlas import AtlasGrammar
from jobs.pipeline.models.grammar import (
    Choice,
    ColumnName,
    Count,
    FunctionGrammar,
    GrammarModel,
    Nothing,
    UnitName,
    WordOrKeys,
    is_stored,
)
from jobs.pipeline.models.storm import StormGrammar
from jobs.pipeline.models.triggers import Clock, TriggerGrammar
from windowlib.bounds import MAX_TIME_MS

MAX_WINDOWS_PER_RECORD = 10_000_000


class RandomStagger(GrammarModel):
    """The offset of the windows is a random number, drawn once from the seed."""

    seed: int


class StaggerGrammar(WordOrKeys):
    """How the windows of a pipeline are shifted. The shift is fixed at the log's first record."""

    WORDS = ("aligned", "natural")
    FORMS = "aligned, natural, {random: {seed: 7}}"
    WHAT = f"of {FORMS}"

    by: Literal["aligned", "natural"] | None = None
    random: RandomStagger | None = None


def _check_offset(offset_ms: int, below_ms: int, what: str) -> None:
    if abs(offset_ms) >= below_ms:
        sign = "-" if offset_ms < 0 else ""
        raise ValueError(
            f"offset: found {sign}{format_duration(abs(offset_ms))}, allowed: between -{format_duration(below_ms)} and "
            f"{format_duration(below_ms)} (the {what}), without the two"
        )


class Tumbling(GrammarModel):
    """Windows of one size, without overlaps and gaps."""

    size_ms: PositiveDuration = Field(alias="size")
    offset_ms: SignedDuration = Field(default=0, alias="offset")
    stagger: StaggerGrammar = StaggerGrammar(by="aligned")

    @model_validator(mode="after")
    def _offset_below_size(self) -> Self:
        _check_offset(self.offset_ms, self.size_ms, "size")
        return self


class Sliding(GrammarModel):
    """A window of `size` every `slide`. If slide < size the windows overlap; if slide > size there are gaps."""

    size_ms: PositiveDuration = Field(alias="size")
    slide_ms: PositiveDuration = Field(alias="slide")
    offset_ms: SignedDuration = Field(default=0, alias="offset")

    @model_validator(mode="after")
    def _bounded_fan_out(self) -> Self:
        windows = -(-self.size_ms // self.slide_ms)
        if windows > MAX_WINDOWS_PER_RECORD:
            raise ValueError(
                f"every record would be in {windows:,} windows (size / slide); at most {MAX_WINDOWS_PER_RECORD:,} "
                "are allowed"
            )
        _check_offset(self.offset_ms, self.slide_ms, "slide")
        return self


_GAPS: Final = "30m, {column: gap_ms}, {function: module:name}"


class GapGrammar(Choice):
    """The gap that ends a session: one duration, or a value from each record (a column or a function)."""

    ONE_OF: ClassVar[tuple[str, ...]] = ("fixed_ms", "column", "function")
    WHAT = f"of {_GAPS}"

    fixed_ms: PositiveDuration | None = Field(default=None, alias="fixed")
    column: ColumnName | None = None
    unit: UnitName | None = None
    function: FunctionGrammar | None = None

    @model_validator(mode="before")
    @classmethod
    def _accept_a_duration(cls, value: object) -> object:
        return value if isinstance(value, Mapping) else {"fixed": value}

    @model_validator(mode="after")
    def _unit_of_column(self) -> Self:
        if self.unit is not None and self.column is None:
            raise ValueError("unit is allowed with column only; a function returns ms")
        return self

    @model_serializer(mode="wrap")
    def _as_a_duration(self, handler: SerializerFunctionWrapHandler) -> object:
        return handler(self) if self.fixed_ms is None else format_duration(self.fixed_ms)


class Session(GrammarModel):
    """A window that grows with its records; a silence of `gap` ends it."""

    gap: GapGrammar


class DynamicSession(GrammarModel):
    """Sessions in which each record has its own gap."""

    gap: GapGrammar

    @model_validator(mode="after")
    def _brought_along(self) -> Self:
        if self.gap.fixed_ms is not None:
            raise ValueError("a dynamic session needs a column or a function for its gap; for one duration use session")
        return self


class CountWindow(GrammarModel):
    """Windows of `size` records of a key, one per `slide` records; without `slide` they do not overlap."""

    size: Count
    slide: Count | None = None


class KeepRecords(GrammarModel):
    """Keep the last `keep` records."""

    keep: Annotated[int, Field(ge=0, le=MAX_TIME_MS)]
    after: bool = False


class KeepTime(GrammarModel):
    """Keep the records that are less than `keep` older than the latest one."""

    keep_ms: PositiveDuration = Field(alias="keep")
    after: bool = False


class KeepDelta(GrammarModel):
    """Keep the records whose column is less than `threshold` below that of the last record."""

    column: ColumnName
    threshold: Annotated[float, Strict(strict=False), Field(allow_inf_nan=False)]
    absolute: bool = False
    after: bool = False


class EvictorGrammar(Choice):
    """Which records a window drops at a firing: before the function gets them, or `after`."""

    WHAT = "kind of evictor"

    count: KeepRecords | None = None
    time: KeepTime | None = None
    delta: KeepDelta | None = None
    function: FunctionGrammar | None = None


AssignerGrammar = Tumbling | Sliding | Session | DynamicSession | CountWindow | Nothing
ASSIGNERS: Final = ("tumbling", "sliding", "session", "dynamic_session", "count", "global_")
FRONT_ENDS: Final = ("storm", "atlas")
_SETTINGS: Final = (
    "time",
    "trigger",
    "evictor",
    "allowed_lateness_ms",
    "accumulation",
    "timestamp_combiner",
    "leftovers",
)


class WindowsGrammar(Choice):
    """The windows of a record, when they fire, and how long they accept late records."""

    ONE_OF: ClassVar[tuple[str, ...]] = (*ASSIGNERS, *FRONT_ENDS)
    WHAT = "kind of window"

    tumbling: Tumbling | None = None
    sliding: Sliding | None = None
    session: Session | None = None
    dynamic_session: DynamicSession | None = None
    count: CountWindow | None = None
    global_: Nothing | None = Field(default=None, alias="global")
    storm: StormGrammar | None = None
    atlas: AtlasGrammar | None = None
    time: Clock = "event"
    trigger: TriggerGrammar | None = None
    evictor: EvictorGrammar | None = None
    allowed_lateness_ms: Duration = Field(default=0, alias="allowed_lateness")
    accumulation: Literal["accumulating", "discarding", "retracting"] = "accumulating"
    timestamp_combiner: Literal["end_of_window", "earliest", "latest"] = "end_of_window"
    leftovers: Literal["refuse", "report", "fire"] = "refuse"

    @model_validator(mode="after")
    def _settings_fit_kind(self) -> Self:
        fields = type(self).model_fields
        given = [name for name in _SETTINGS if getattr(self, name) != fields[name].default]
        if self.front_end is not None and given:
            key = fields[given[0]].alias or given[0]
            raise ValueError(f"windows.{self.front_end} has its own options and takes no {key}; leave it out")
        if self.count is not None and given:
            key = fields[given[0]].alias or given[0]
            raise ValueError(f"count windows fire at their size and take no {key}; use global: {{}} with a trigger")
        if self.global_ is not None and (self.time == "processing" or self.allowed_lateness_ms):
            raise ValueError("a global window never ends; leave out time and allowed_lateness")
        if self.time == "processing" and self.allowed_lateness_ms:
            raise ValueError("with time: processing no record is late; leave out allowed_lateness")
        return self

    @model_validator(mode="after")
    def _leftovers_at_an_end(self, info: ValidationInfo) -> Self:
        if self.global_ is None or self.leftovers == "refuse" or is_stored(info):
            return self
        can_lose = self.trigger is not None and self.trigger.may_finish
        if self.leftovers == "fire" or not can_lose:
            raise ValueError(
                f"leftovers: found {self.leftovers}; a global window never ends, so it has no leftovers; leave it out"
            )
        return self

    @model_validator(mode="after")
    def _global_windows_fire(self, info: ValidationInfo) -> Self:
        trigger = self.trigger
        if self.global_ is None or is_stored(info) or (trigger is not None and trigger.fires_without_an_end):
            return self
        kind = "no trigger" if trigger is None else TriggerGrammar.model_fields[trigger.kind].alias or trigger.kind
        raise ValueError(
            f"trigger: found {kind}; a global window never ends, so it would never fire; write another trigger, such "
            "as trigger: {count: 100}"
        )

    @property
    def front_end(self) -> str | None:
        """The engine whose syntax the windows use: storm, atlas, or None for Hindcast's own."""
        return next((name for name in FRONT_ENDS if getattr(self, name) is not None), None)

    @property
    def assigner(self) -> AssignerGrammar | None:
        """The kind of window in the file; None for Storm's and Atlas's windows."""
        chosen: AssignerGrammar | None = next(
            (assigner for name in ASSIGNERS if (assigner := getattr(self, name)) is not None), None
        )
        return chosen

    @property
    def waits_for_watermark(self) -> bool:
        """Whether the windows need a watermark to fire, as far as the file shows."""
        if self.front_end is not None or self.time == "processing":
            return False
        return self.count is None and (self.global_ is None or self.needs_watermark)

    @property
    def needs_watermark(self) -> bool:
        """Whether a trigger waits for event time."""
        parts = self.trigger.whole() if self.trigger is not None else ()
        return any(
            part.kind in ("event_time", "end_of_stream", "after_watermark", "default")
            or (part.continuous is not None and part.continuous.time == "event")
            for part in parts
        )

    @property
    def is_processing_time(self) -> bool:
        """Whether a record's windows depend on its arrival time instead of its event time."""
        if self.storm is not None:
            return self.storm.time == "processing"
        return not self.atlas.windows().is_event_time if self.atlas is not None else self.time == "processing"

    @property
    def is_unbounded(self) -> bool:
        """Whether the windows have no bounds in time."""
        return self.count is not None or self.global_ is not None

    @property
    def ends_by_time(self) -> bool:
        """Whether windows end at a time that follows from their records alone, so that a chain may begin later."""
        if self.tumbling is not None:
            return self.tumbling.stagger.by != "natural"
        has_fixed_gap = self.session is not None and self.session.gap.fixed_ms is not None
        return self.sliding is not None or (has_fixed_gap and self.time == "event")

    @property
    def clock_users(self) -> list[str]:
        """The parts of the windows that need the replay's clock, as far as the file shows."""
        users = {
            "time": self.time == "processing",
            "tumbling.stagger": self.tumbling is not None and self.tumbling.stagger.by == "natural",
            "trigger": self.trigger is not None and self.trigger.needs_clock,
            "storm": self.storm is not None,
            "atlas (processing time, an idle time-out or $$NOW)": self.atlas is not None and self.atlas.needs_clock,
        }
        return [f"windows.{name}" for name, needs_clock in users.items() if needs_clock]

    @property
    def keeps_records(self) -> bool:
        """Whether windows keep whole records, and no running aggregates."""
        has_slide = self.count is not None and self.count.slide is not None
        return self.evictor is not None or self.storm is not None or has_slide

    def functions(self) -> tuple[FunctionGrammar, ...]:
        """Return the users' functions that this part of the file names."""
        sessions = (self.session, self.dynamic_session)
        functions = [session.gap.function for session in sessions if session is not None]
        functions += [part.function for part in (self.trigger.whole() if self.trigger else ())]
        functions += [self.evictor.function] if self.evictor is not None else []
        return tuple(function for function in functions if function is not None)
