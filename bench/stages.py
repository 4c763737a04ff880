"""Where the seconds of a replay go: wall and CPU seconds of each of its steps.

The steps are functions that `jobs.replay.replayer` calls by name. They are wrapped there, so the replay itself has no
code for this. A step that the module does not have is left out.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Final

from bench.meter import tree_cpu_s

STEPS: Final = ("pin", "compute", "write", "audit", "check")
REST: Final = "plan, ledger, publish"


@dataclass(slots=True)
class Stopwatch:
    """Seconds by stage: wall seconds, and the CPU seconds of this process and all below it."""

    wall_s: dict[str, float] = field(default_factory=dict)
    cpu_s: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Add the time of the context to a stage."""
        began, spent = time.perf_counter(), tree_cpu_s(os.getpid())
        try:
            yield
        finally:
            self.wall_s[stage] = self.wall_s.get(stage, 0.0) + time.perf_counter() - began
            self.cpu_s[stage] = self.cpu_s.get(stage, 0.0) + tree_cpu_s(os.getpid()) - spent

    def stages(self, whole: str) -> dict[str, dict[str, float]]:
        """Return seconds by stage; what no stage covers of `whole` is the stage REST."""
        found = {}
        for name, seconds in (("wall_s", self.wall_s), ("cpu_s", self.cpu_s)):
            own = {stage: round(spent, 3) for stage, spent in seconds.items() if stage != whole}
            found[name] = {**own, REST: round(max(seconds.get(whole, 0.0) - sum(own.values()), 0.0), 3)}
        return found


@contextmanager
def watched(module: Any, steps: tuple[str, ...] = STEPS) -> Iterator[Stopwatch]:  # noqa: ANN401 - a module
    """Time the steps that a module calls by name, during the context."""
    watch = Stopwatch()
    before = {name: getattr(module, name) for name in steps if hasattr(module, name)}
    for name, step in before.items():
        setattr(module, name, _timed(watch, name, step))
    try:
        yield watch
    finally:
        for name, step in before.items():
            setattr(module, name, step)


def _timed(watch: Stopwatch, name: str, step: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(step)
    def timed(*args: Any, **named: Any) -> Any:  # noqa: ANN401 - whatever the step takes
        with watch.timed(name):
            return step(*args, **named)

    return timed
