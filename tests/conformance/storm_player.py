"""Plays recorded scripts of Storm's windows through a StormSpec in the profile storm.

A script is `{"window": {length, slide, event_time, lag_ms, streams, late, events}}`. With event time, its events are
`["e", value, time, stream]` and `["tick"]`, at which the watermark generator runs. Otherwise they are `["e", value]`.
The answer has every window with Storm's three lists, the late tuples, and the watermarks in Storm's reading.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from windowlib.errors import InvariantBroken, SpecError
from windowlib.functions.window_functions import Place, ProcessContext, ProcessFunction
from windowlib.records.records import Late, Pane, Record
from windowlib.storm.firing import StormContext
from windowlib.storm.profiles import STORM
from windowlib.storm.spec import CountLength, Length, StormSpec, TimeLength
from windowlib.storm.stream_time import StreamWatermarks


class Lists(ProcessFunction):
    """Returns Storm's three lists of a window (its tuples, the new ones, the expired ones), and the window's end."""

    def process(self, place: Place, contents: Sequence[Any], ctx: ProcessContext) -> Iterable[Any]:
        if not isinstance(ctx, StormContext):
            raise InvariantBroken(f"a Storm window fired with a {type(ctx).__name__}")
        lists = {"events": list(contents), "new": list(ctx.new), "expired": list(ctx.expired)}
        return [{"ref": place.window.end_ms, **lists}]


def length_of(script: Mapping[str, int]) -> Length:
    """Return the length or slide that a script writes as `{"count": n}` or `{"ms": n}`.

    Raises:
        SpecError: the script has another form, or the number is not positive.
    """
    match dict(script):
        case {"count": int(count), **rest} if not rest:
            return CountLength(count)
        case {"ms": int(ms), **rest} if not rest:
            return TimeLength(ms)
        case other:
            raise SpecError(f"script: a length is {{'count': n}} or {{'ms': n}}, got {other!r}")


def spec_of(window: Mapping[str, Any]) -> StormSpec:
    """Return a StormSpec in the profile storm for a script's `window`."""
    is_event_time = bool(window["event_time"])
    return StormSpec(
        length=length_of(window["length"]),
        slide=length_of(window["slide"]) if "slide" in window else CountLength(1),
        function=Lists(),
        is_event_time=is_event_time,
        expected=tuple(window.get("streams", ())) if is_event_time else (),
        lag_ms=window.get("lag_ms", 0) if is_event_time else 0,
        late=bool(window.get("late", False)) and is_event_time,
        profile=STORM,
    )


class Player:
    """Plays the events of one script and collects the answer in `answer`."""

    def __init__(self, window: Mapping[str, Any]) -> None:
        spec = spec_of(window)
        self._operator = spec.build()
        self._streams = StreamWatermarks(spec.expected, spec.lag_ms, spec.profile.starts_at_ms)
        self._has_late_stream = spec.late
        self._rank = 0
        self.answer: dict[str, list[Any]] = {"windows": [], "late": [], "watermarks": []}

    def play(self, event: Sequence[Any]) -> None:
        """Play one event and add its outputs to the answer.

        Raises:
            SpecError: the event does not exist.
        """
        self._rank += 1
        match event:
            case ["e", value, int(at_ms), str(stream)]:
                self._streams.observe(stream, at_ms)
                self._operator.process(Record((), at_ms, value, (0, self._rank), self._rank))
            case ["e", value]:
                self._operator.process(Record((), None, value, (0, self._rank), self._rank))
            case ["tick"]:
                self._tick()
            case _:
                raise SpecError(f"script: unknown event {event!r}; there are e (value, time, stream) and tick")
        for output in self._operator.drain():
            match output:
                case Pane():
                    self.answer["windows"].append(output.values)
                case Late() if self._has_late_stream:
                    self.answer["late"].append(output.record.value)
                case _:
                    pass  # without a late stream, Storm only logs a late tuple

    def _tick(self) -> None:
        # Our watermark is Storm's minus 1: a record equal to ours is late, a record equal to Storm's is not.
        watermark_ms = self._streams.tick()
        if watermark_ms is not None:
            self.answer["watermarks"].append(watermark_ms)
            self._operator.advance_watermark(watermark_ms - 1, (0, self._rank))


def play(script: Mapping[str, Any]) -> dict[str, Any]:
    """Play one script and return the answer.

    Raises:
        SpecError: an event does not exist, or Storm refuses the windows, too.
    """
    player = Player(script["window"])
    for event in script["window"]["events"]:
        player.play(event)
    return player.answer
