"""What a window operator computes, after a WindowSpec was checked and its defaults were filled in."""

from dataclasses import dataclass
from typing import Literal

from windowlib.assigners import Assigner
from windowlib.evictors import Evictor
from windowlib.functions import WindowFunction
from windowlib.output_times import TimestampCombiner
from windowlib.profiles import STRICT, Profile
from windowlib.records import Mode
from windowlib.timers import STALE_MAX
from windowlib.trigger_protocol import Trigger

Leftovers = Literal["refuse", "report", "fire"]
"""What to do at a window's end with records that no pane has shown: refuse such a spec, count them, or fire them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Windowing:
    """The parts of a window operator; `spec.WindowSpec` is how users get one."""

    assigner: Assigner
    trigger: Trigger
    function: WindowFunction
    evictor: Evictor | None = None
    allowed_lateness_ms: int = 0
    mode: Mode = "accumulating"
    leftovers: Leftovers = "report"
    retracts: bool = False
    timestamp_combiner: TimestampCombiner = "end_of_window"
    profile: Profile = STRICT
    stale_max: int = STALE_MAX
