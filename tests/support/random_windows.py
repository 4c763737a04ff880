"""Random `windows` parts of pipeline files, with small sizes, for the log of tests/support/bucket_replay.py."""

from collections.abc import Callable
from random import Random
from typing import Any, Final

SAYS_EVERYTHING: Final = {"name": "tests.support.functions:SaysEverything", "columns": ["amount"]}
Part = dict[str, Any]


def random_windows(random: Random) -> Part:
    """Return the `windows` of a pipeline file. The grammar refuses about one in three."""
    windows = _assigner(random)
    if "count" in windows:
        return windows
    if random.random() < 0.85:
        windows["trigger"] = random_trigger(random)
    windows["accumulation"] = random.choice(["accumulating", "accumulating", "discarding", "retracting"])
    if "global" in windows:
        windows["leftovers"] = random.choice(["refuse", "refuse", "report"])
    else:
        windows["leftovers"] = random.choice(["report", "report", "fire"])
        windows["time"] = random.choice(["event", "event", "processing"])
        if windows["time"] == "event":
            windows["allowed_lateness"] = random.choice(["0s", "15ms", "200ms"])
    return windows


def _assigner(random: Random) -> Part:
    size = f"{random.randint(1, 80)}ms"
    match random.randrange(7):
        case 0 | 1:
            return {"tumbling": {"size": size}}
        case 2:
            return {"sliding": {"size": size, "slide": f"{random.randint(10, 80)}ms"}}
        case 3:
            return {"session": {"gap": size}}
        case 4:
            return {"dynamic_session": {"gap": {"column": "gap_ms"}}}
        case 5:
            return {"count": {"size": random.randint(1, 4), "slide": random.choice([None, 1, 2, 3])}}
        case _:
            return {"global": {}}


_Maker = Callable[[Random, int], Part]


def _ms(random: Random) -> str:
    return f"{random.randint(1, 60)}ms"


def _timeout(random: Random, depth: int) -> Part:
    flags = {name: random.random() < 0.5 for name in ("restart", "clear")}
    return {"timeout": {"trigger": random_trigger(random, depth - 1), "after": _ms(random), **flags}}


_SIMPLE: Final[tuple[_Maker, ...]] = (
    lambda *_: {"event_time": {}},
    lambda *_: {"processing_time": {}},
    lambda random, _: {"continuous": {"every": _ms(random), "time": random.choice(["event", "processing"])}},
    lambda random, _: {"count": random.randint(1, 4)},
    lambda random, _: {"delta": {"column": "amount", "threshold": random.randint(0, 3)}},
    lambda *_: {"function": SAYS_EVERYTHING},
    lambda random, _: random.choice([{"never": {}}, {"end_of_stream": {}}]),
    lambda random, depth: random_composite(random, depth),  # noqa: PLW0108 - defined below
)
_AROUND: Final[tuple[_Maker, ...]] = (
    lambda random, depth: random_composite(random, depth),  # noqa: PLW0108
    lambda random, depth: {"purging": random_trigger(random, depth - 1)},
    _timeout,
)
_CONDITIONS: Final[tuple[_Maker, ...]] = (
    lambda random, _: {"after_count": random.randint(1, 3)},
    lambda random, _: {"after_processing_time": _ms(random)},
    lambda *_: {"default": {}},
    lambda *_: {"always": {}},
)


def _after_watermark(random: Random, depth: int) -> Part:
    chosen = [name for name in ("early", "late") if random.random() < 0.7]
    return {"after_watermark": {name: random_composite(random, depth - 1) for name in chosen}}


def _or_finally(random: Random, depth: int) -> Part:
    return {"or_finally": {name: random_composite(random, depth - 1) for name in ("trigger", "finally")}}


def _several(random: Random, depth: int) -> Part:
    return {random.choice(["any", "all", "each"]): [random_composite(random, depth - 1) for _ in range(2)]}


_COMBINATORS: Final[tuple[_Maker, ...]] = (
    lambda random, depth: {"repeatedly": random_composite(random, depth - 1)},
    _after_watermark,
    _or_finally,
    _several,
)


def random_trigger(random: Random, depth: int = 3) -> Part:
    """Return a trigger: a simple one, one of Flink's around another trigger, or a composite trigger of composites."""
    makers = random.choice([_SIMPLE, _AROUND]) if depth else _SIMPLE
    return random.choice(makers)(random, depth)


def random_composite(random: Random, depth: int) -> Part:
    """Return a composite trigger."""
    makers = random.choice([_CONDITIONS, _COMBINATORS]) if depth else _CONDITIONS
    return random.choice(makers)(random, depth)
