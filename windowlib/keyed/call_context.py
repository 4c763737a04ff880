"""What users' functions get and give: the context that all of them share, and the values that they return."""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final

from windowlib.errors import SpecError
from windowlib.keyed.state import KeyedState, StateView
from windowlib.keyed.timers import TimerService
from windowlib.records.records import Output, Position, SideOutput, Value


@dataclass(slots=True, kw_only=True)
class CallContext:
    """The context of one call of a user's function, for one key.

    `timers`, `keyed_state` and `outputs` belong to the operator; a function uses the properties and methods instead.
    """

    key: Hashable
    timestamp_ms: int | None
    """The event time of the call, which its side outputs carry; None for a processing timer."""
    timers: TimerService = field(repr=False)
    keyed_state: KeyedState = field(repr=False)
    outputs: list[Output] = field(repr=False)
    position: Position
    """The record in the log that caused the call."""

    def __post_init__(self) -> None:
        self.keyed_state.begin_call()

    @property
    def watermark_ms(self) -> int:
        return self.timers.watermark_ms

    @property
    def processing_time_ms(self) -> int:
        """The time of the clock; in a replay, the arrival time of the log's records."""
        return self.timers.processing_time_ms

    @property
    def state(self) -> StateView:
        """The declared state of the key."""
        return self.keyed_state.view(self.key)

    def output(self, tag: str, value: Value) -> None:
        """Send a value to the side output `tag`, with `timestamp_ms` as its time."""
        output = SideOutput(tag, deepcopy(value), self.key, self.timestamp_ms, self.watermark_ms, self.position)
        self.outputs.append(output)


Missing = tuple[tuple[str, str], ...]
"""What users' functions cannot use in a pipeline: attributes of their contexts, each with the key of the pipeline file
that it needs."""

NO_CLOCK: Final[Missing] = (
    ("processing_time_ms", "log.arrival_time"),
    ("register_processing_timer", "log.arrival_time"),
)
NO_WATERMARK: Final[Missing] = (("register_event_timer", "watermark"),)


class _Without:
    """A context that raises a SpecError for the attributes in `missing`: a timer of them would never be due."""

    __slots__ = ("_ctx", "_missing")

    def __init__(self, ctx: object, missing: Missing) -> None:
        self._ctx = ctx
        self._missing = dict(missing)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute of the context
        if (key := self._missing.get(name)) is not None:
            raise SpecError(f"a function of yours uses ctx.{name}, which needs {key} in the pipeline file; add it")
        return getattr(self._ctx, name)


def shown_context(ctx: Any, missing: Missing) -> Any:  # noqa: ANN401 - one of the contexts
    """Return the context that a user's function gets."""
    return _Without(ctx, missing) if missing else ctx


def emitted(results: Iterable[Any] | None) -> Iterator[Any]:
    """Yield copies of the values that a user's function returned. What the function changes later is not in them.

    Raises SpecError: the function returned one value in place of a list of values, or None.
    """
    if not isinstance(results, Iterable) or isinstance(results, str | bytes | Mapping):
        raise SpecError(
            f"a function over windows or keys returned {results!r:.100}; it must return a list of the values to emit: "
            "[value] for one, [] for none"
        )
    return map(deepcopy, results)
