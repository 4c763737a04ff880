"""`windows: {storm: ...}` of a pipeline file: Apache Storm's windows, with all options of Storm's builder."""

from typing import Annotated, Literal, Self

from pydantic import Field, ValidationInfo, model_validator

from jobs.durations import Duration, PositiveDuration, parse_duration
from jobs.pipeline.models.grammar import Choice, ColumnName, Columns, Count, GrammarModel, is_stored, not_a_mapping
from windowlib.bounds import MAX_DURATION_MS

WATERMARK_INTERVAL_MS = 1_000
_LENGTHS = "{count: 100}, {ms: 5000}, 5s"


class StormLength(Choice):
    """A number of tuples, or a time."""

    WHAT = f"of {_LENGTHS}"

    count: Count | None = None
    ms: Annotated[int, Field(ge=1, le=MAX_DURATION_MS)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _accept_a_duration(cls, value: object) -> object:
        not_a_mapping(value, f"allowed: {_LENGTHS}")
        if value == "every_tuple":
            return {"count": 1}
        return {"ms": parse_duration(value)} if isinstance(value, str) else value


class StormStreams(GrammarModel):
    """The column that names a tuple's stream, and the streams that must have a tuple before a watermark exists."""

    column: ColumnName
    expected: Columns | None = None


class StormGrammar(GrammarModel):
    """Windows of a length, one per slide; by default one per tuple. Storm's windows compute their own watermark."""

    length: StormLength
    slide: StormLength = StormLength(count=1)
    time: Literal["event", "processing"] = "event"
    streams: StormStreams | None = None
    lag_ms: Duration = Field(default=0, alias="lag")
    watermark_interval_ms: PositiveDuration = Field(default=WATERMARK_INTERVAL_MS, alias="watermark_interval")
    late: bool = False
    message_timeout_ms: PositiveDuration | None = Field(default=None, alias="message_timeout")
    max_spout_pending: Count | None = None

    @model_validator(mode="after")
    def _event_time_only(self, info: ValidationInfo) -> Self:
        is_usual = self.watermark_interval_ms == WATERMARK_INTERVAL_MS or is_stored(info)
        if self.time == "processing" and (self.streams is not None or self.lag_ms or self.late or not is_usual):
            raise ValueError("time: processing has no watermark; leave out streams, lag, late and watermark_interval")
        return self
