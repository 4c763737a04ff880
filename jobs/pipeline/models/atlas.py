"""`windows: {atlas: ...}` of a pipeline file: a window stage in the syntax of MongoDB Atlas Stream Processing."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from pydantic import Field, ValidationInfo, model_validator

from jobs.pipeline.models.grammar import Choice, ColumnName, is_stored
from windowlib.errors import SpecError

if TYPE_CHECKING:
    from windowlib.atlas.window_stages import Windows

_PRESERVE: Final = "preserveNullAndEmptyArrays"
STAGES: Final = ("tumbling_window", "hopping_window", "session_window")


class AtlasGrammar(Choice):
    """One window stage, the options of `$source` that windows use, and the column of a record's partition."""

    ONE_OF: ClassVar[tuple[str, ...]] = STAGES
    WHAT = "window stage"

    tumbling_window: Mapping[str, Any] | None = Field(default=None, alias="$tumblingWindow")
    hopping_window: Mapping[str, Any] | None = Field(default=None, alias="$hoppingWindow")
    session_window: Mapping[str, Any] | None = Field(default=None, alias="$sessionWindow")
    source: Mapping[str, Any] = {}
    partition: ColumnName | None = None

    @model_validator(mode="after")
    def _check_stage(self, info: ValidationInfo) -> Self:
        from windowlib.atlas.stages.stages import compile_pipeline
        from windowlib.atlas.window_stages import Source, read_windows

        try:
            json.dumps([self.stage, self.source], allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"the stage cannot be written as JSON: {error}; write a date as a text or {{$date: ...}}"
            ) from error
        try:
            _, pipeline, place = read_windows(self.stage)
            Source.read(self.source)
            if not is_stored(info):
                compile_pipeline(pipeline, place)
        except SpecError as error:
            raise ValueError(str(error)) from error
        return self

    @model_validator(mode="after")
    def _boolean_of_unwind(self, info: ValidationInfo) -> Self:
        stages = next(iter(self.stage.values())).get("pipeline", [])
        unwinds = [stage["$unwind"] for stage in stages if isinstance(stage, Mapping) and "$unwind" in stage]
        for unwind in unwinds:
            value = unwind.get(_PRESERVE, False) if isinstance(unwind, Mapping) else False
            if not isinstance(value, bool) and not is_stored(info):
                raise ValueError(f"$unwind.{_PRESERVE}: found {value!r}; allowed: true or false")
        return self

    @model_validator(mode="after")
    def _partition_of_time_out(self, info: ValidationInfo) -> Self:
        has_time_out = "partitionIdleTimeout" in self.source
        if has_time_out == (self.partition is not None) or is_stored(info):
            return self
        if has_time_out:
            raise ValueError(
                "source.partitionIdleTimeout needs partition, the column with a record's partition; without it, no "
                "partition waits for another one"
            )
        raise ValueError(
            f"partition: found {self.partition!r}; the watermark counts partitions only with "
            "source.partitionIdleTimeout; leave partition out, or write source: {partitionIdleTimeout: {size: 1, unit: "
            "hour}}"
        )

    @property
    def stage(self) -> dict[str, Any]:
        """The stage as Atlas writes it: a mapping with one key."""
        name = next(key for key in STAGES if getattr(self, key) is not None)
        return {str(type(self).model_fields[name].alias): getattr(self, name)}

    def windows(self) -> "Windows":
        """Return the windows of the stage."""
        from windowlib.atlas.window_stages import read_windows

        return read_windows(self.stage)[0]

    @property
    def needs_clock(self) -> bool:
        """Whether a part of the stage waits for the replay's clock or reads it."""
        from windowlib.atlas.clock_use import reads_clock

        windows = self.windows()
        waits = windows.idle_timeout_ms is not None or "partitionIdleTimeout" in self.source
        return not windows.is_event_time or waits or reads_clock(self.stage)
