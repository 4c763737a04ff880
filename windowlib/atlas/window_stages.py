"""Reads the three window stages and the source's options from JSON into checked values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from windowlib.atlas.documents.json_documents import json_text
from windowlib.atlas.documents.places import Json, Place
from windowlib.bounds import MAX_DURATION_MS, TimeWindow
from windowlib.errors import SpecError
from windowlib.windows.assigners import WINDOWS_PER_RECORD_MAX

UNITS: Final[Mapping[str, int]] = {"ms": 1, "second": 1_000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
OFFSET_UNITS: Final = ("ms", "second", "minute", "hour")
BOUNDARIES: Final = ("eventTime", "processingTime")
DEFAULT_LATENESS_MS: Final = 3_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Hopping:
    """$tumblingWindow and $hoppingWindow: windows of one size, one every `hop_ms`, aligned to 1970 plus an offset.

    If the hop is longer than the size, there are gaps between the windows.
    """

    stage: str
    size_ms: int
    hop_ms: int
    offset_ms: int = 0
    is_event_time: bool = True
    allowed_lateness_ms: int = DEFAULT_LATENESS_MS
    idle_timeout_ms: int | None = None

    def windows_of(self, at_ms: int) -> Sequence[TimeWindow]:
        """Return the windows that hold a time, the oldest first; an empty list in a gap."""
        newest_ms = at_ms - (at_ms - self.offset_ms) % self.hop_ms
        starts = range(newest_ms, at_ms - self.size_ms, -self.hop_ms)
        return [TimeWindow(start_ms, start_ms + self.size_ms) for start_ms in reversed(starts)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """$sessionWindow: a session holds documents of one partition that are less than `gap_ms` apart.

    `partition_by` is JSON text.
    """

    gap_ms: int
    partition_by: str
    stage: str = "$sessionWindow"
    is_event_time: bool = True
    allowed_lateness_ms: int = DEFAULT_LATENESS_MS
    idle_timeout_ms: None = None


Windows = Hopping | Sessions

_COMMON: Final = ("boundary", "allowedLateness")
_ALIGNED: Final = (*_COMMON, "offset", "idleTimeout")
_OPTIONS: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "$tumblingWindow": (("interval", "pipeline"), _ALIGNED),
    "$hoppingWindow": (("interval", "hopSize", "pipeline"), _ALIGNED),
    "$sessionWindow": (("partitionBy", "gap", "pipeline"), _COMMON),
}
"""The required and the optional options of each stage."""
WINDOW_STAGES: Final = tuple(_OPTIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The supported options of $source: the name of the event time's field, and the idle time-out of partitions."""

    ts_field_name: str = "_ts"
    partition_idle_timeout_ms: int | None = None

    @classmethod
    def read(cls, options: Json) -> "Source":
        """Return the options of $source.

        Raises SpecError: an option does not exist, is not valid, or belongs into the log's own settings.
        """
        place = Place("$source")
        fields = place.mapping(options)
        if "timeField" in fields:
            raise SpecError(
                "$source.timeField: the pipeline file defines the event time in log: event_time; name the column there "
                "and remove timeField"
            )
        fields = place.fields(options, optional=("tsFieldName", "partitionIdleTimeout"))
        name = place.at("tsFieldName").text(fields.get("tsFieldName", "_ts"))
        if "." in name or name.startswith("$"):
            raise place.at("tsFieldName").refused(name, "a field's name without dots that does not begin with $")
        return cls(ts_field_name=name, partition_idle_timeout_ms=_duration_in(fields, "partitionIdleTimeout", place))


def duration_ms(duration: Json, place: Place, *, at_least: int = 1) -> int:
    """Return the duration `{size, unit}` in ms.

    Raises SpecError: the form or the unit is wrong, the size is less than `at_least`, or the duration is too long.
    """
    fields = place.fields(duration, required=("size", "unit"))
    size = place.at("size").integer(fields["size"], at_least=at_least)
    total_ms = size * UNITS[place.at("unit").one_of(fields["unit"], UNITS)]
    if total_ms > MAX_DURATION_MS:
        raise place.refused(duration, "a duration of at most 9,999 years")
    return total_ms


def _duration_in(fields: Mapping[str, Json], name: str, place: Place, *, at_least: int = 1) -> int | None:
    """Return the duration of an option, or None if it is absent or null."""
    duration = fields.get(name)
    return None if duration is None else duration_ms(duration, place.at(name), at_least=at_least)


def read_windows(stage: Json) -> tuple[Windows, Json, Place]:
    """Read a window stage.

    Returns:
        The windows, the inner pipeline as the user wrote it, and the place of the inner pipeline.

    Raises:
        SpecError: `stage` is not a window stage, has an unknown option, or an option has a wrong value.
    """
    name, options = Place("windows.atlas").single(stage, "one of " + ", ".join(WINDOW_STAGES))
    if name not in _OPTIONS:
        raise SpecError(f"{name} is not a window stage; allowed are {', '.join(WINDOW_STAGES)}")
    place, (required, optional) = Place(name), _OPTIONS[name]
    fields = place.fields(options, required=required, optional=optional)
    boundary = place.at("boundary").one_of(fields.get("boundary", "eventTime"), BOUNDARIES)
    if boundary == "processingTime":
        for option in ("idleTimeout", "allowedLateness"):
            if option in fields:
                raise SpecError(
                    f"{place.at(option).path}: a window with boundary processingTime has no {option}, because no "
                    "document is late on the clock and the clock is never idle; remove it"
                )
    is_event_time = boundary == "eventTime"
    lateness_ms = _duration_in(fields, "allowedLateness", place, at_least=0)
    if lateness_ms is None:
        lateness_ms = DEFAULT_LATENESS_MS if is_event_time else 0
    windows: Windows
    if name == "$sessionWindow":
        windows = Sessions(
            gap_ms=duration_ms(fields["gap"], place.at("gap")),
            partition_by=json_text(fields["partitionBy"], place.at("partitionBy")),
            is_event_time=is_event_time,
            allowed_lateness_ms=lateness_ms,
        )
    else:
        windows = _aligned(name, fields, place, is_event_time=is_event_time, lateness_ms=lateness_ms)
    return windows, fields["pipeline"], place.at("pipeline")


def _aligned(name: str, fields: Mapping[str, Json], place: Place, *, is_event_time: bool, lateness_ms: int) -> Hopping:
    size_ms = duration_ms(fields["interval"], place.at("interval"))
    hop_ms = duration_ms(fields["hopSize"], place.at("hopSize")) if "hopSize" in fields else size_ms
    if size_ms // hop_ms > WINDOWS_PER_RECORD_MAX:
        raise place.at("hopSize").refused(
            fields["hopSize"], f"a hop that puts a document into at most {WINDOWS_PER_RECORD_MAX} windows"
        )
    return Hopping(
        stage=name,
        size_ms=size_ms,
        hop_ms=hop_ms,
        offset_ms=_offset_ms(fields["offset"], place.at("offset")) % hop_ms if "offset" in fields else 0,
        is_event_time=is_event_time,
        allowed_lateness_ms=lateness_ms,
        idle_timeout_ms=_duration_in(fields, "idleTimeout", place, at_least=0),
    )


def _offset_ms(offset: Json, place: Place) -> int:
    fields = place.fields(offset, required=("offsetFromUtc", "unit"))
    count = place.at("offsetFromUtc").integer(fields["offsetFromUtc"])
    return count * UNITS[place.at("unit").one_of(fields["unit"], OFFSET_UNITS)]
