"""The `trigger` part of a pipeline file: when a window fires. It is a mapping with one key, and may be nested."""

from typing import Annotated, Final, Literal

from pydantic import Field, Strict

from jobs.durations import Duration, PositiveDuration
from jobs.pipeline.models.grammar import Choice, ColumnName, Count, FunctionGrammar, GrammarModel, Nothing

Clock = Literal["event", "processing"]
_MAY_FINISH: Final = frozenset({
    "after_watermark", "any_of", "all_of", "each_of", "or_finally", "after_count", "after_processing_time_ms",
    "function",
})  # fmt: skip
_AT_AN_END: Final = frozenset({"never", "end_of_stream", "event_time", "processing_time", "default"})


class ContinuousGrammar(GrammarModel):
    """Fire each time the clock passes a multiple of `every`, and at the window's end."""

    every_ms: PositiveDuration = Field(alias="every")
    time: Clock = "event"


class DeltaGrammar(GrammarModel):
    """Fire when a record's column exceeds that of the last record that fired by more than `threshold`."""

    column: ColumnName
    threshold: Annotated[float, Strict(strict=False), Field(allow_inf_nan=False)]
    absolute: bool = False


class TimeoutGrammar(GrammarModel):
    """Fire as `trigger` does, and also `after` the first record by the clock (with `restart`: after the last one)."""

    trigger: "TriggerGrammar"
    after_ms: Duration = Field(alias="after")
    restart: bool = False
    clear: bool = True


class AfterWatermarkGrammar(GrammarModel):
    """Fire at the window's end. `early` may fire before the end, `late` after it."""

    early: "TriggerGrammar | None" = None
    late: "TriggerGrammar | None" = None


class OrFinallyGrammar(GrammarModel):
    """Fire as `trigger` does, until `finally` fires for the first and last time."""

    trigger: "TriggerGrammar"
    last: "TriggerGrammar" = Field(alias="finally")


Triggers = Annotated["tuple[TriggerGrammar, ...]", Strict(strict=False), Field(min_length=1, max_length=16)]


class TriggerGrammar(Choice):
    """One trigger: of Flink (`event_time` .. `end_of_stream`), of Beam (`after_watermark` .. `default`) or a user's."""

    WHAT = "kind of trigger"

    event_time: Nothing | None = None
    processing_time: Nothing | None = None
    continuous: ContinuousGrammar | None = None
    count: Count | None = None
    delta: DeltaGrammar | None = None
    purging: "TriggerGrammar | None" = None
    timeout: TimeoutGrammar | None = None
    never: Nothing | None = None
    end_of_stream: Nothing | None = None
    after_watermark: AfterWatermarkGrammar | None = None
    any_of: Triggers | None = Field(default=None, alias="any")
    all_of: Triggers | None = Field(default=None, alias="all")
    each_of: Triggers | None = Field(default=None, alias="each")
    repeatedly: "TriggerGrammar | None" = None
    or_finally: OrFinallyGrammar | None = None
    after_count: Count | None = None
    after_processing_time_ms: Duration | None = Field(default=None, alias="after_processing_time")
    always: Nothing | None = None
    default: Nothing | None = None
    function: FunctionGrammar | None = None

    @property
    def kind(self) -> str:
        """The name of the one field that is set."""
        return next(name for name in type(self).model_fields if getattr(self, name) is not None)

    def parts(self) -> "tuple[TriggerGrammar, ...]":
        """Return the triggers directly inside this one."""
        inside = [self.purging, self.repeatedly, *(self.any_of or ()), *(self.all_of or ()), *(self.each_of or ())]
        if self.timeout is not None:
            inside.append(self.timeout.trigger)
        if self.after_watermark is not None:
            inside += [self.after_watermark.early, self.after_watermark.late]
        if self.or_finally is not None:
            inside += [self.or_finally.trigger, self.or_finally.last]
        return tuple(part for part in inside if part is not None)

    def whole(self) -> "tuple[TriggerGrammar, ...]":
        """Return this trigger and all triggers inside it, from the outside to the inside."""
        return (self, *(deeper for part in self.parts() for deeper in part.whole()))

    @property
    def may_finish(self) -> bool:
        """Whether it may fire for the last time, and drop later records of a window that has no end."""
        inner = self.timeout.trigger if self.timeout is not None else self.purging
        return self.kind in _MAY_FINISH if inner is None else inner.may_finish

    @property
    def fires_without_an_end(self) -> bool:
        """Whether it may fire in a window that has no end. Triggers at the end of a window or of the input do not."""
        if self.timeout is not None:
            return True
        if self.after_watermark is not None:
            early = self.after_watermark.early
            return early is not None and early.fires_without_an_end
        if self.each_of is not None:  # the second one waits for the first
            return self.each_of[0].fires_without_an_end
        if self.all_of is not None:
            return all(part.fires_without_an_end for part in self.all_of)
        parts = self.parts()
        return any(part.fires_without_an_end for part in parts) if parts else self.kind not in _AT_AN_END

    @property
    def needs_clock(self) -> bool:
        """Whether it waits for the replay's clock. False for a user's trigger, which may wait for it all the same."""
        return any(
            part.kind in ("processing_time", "timeout", "after_processing_time_ms")
            or (part.continuous is not None and part.continuous.time == "processing")
            for part in self.whole()
        )


for _part in (TimeoutGrammar, AfterWatermarkGrammar, OrFinallyGrammar):
    _part.model_rebuild()  # their fields refer to TriggerGrammar, which is defined after them
