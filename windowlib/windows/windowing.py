"""The configuration of a window operator: a WindowSpec with its defaults filled in."""

from dataclasses import dataclass
from typing import Final, Literal

from windowlib.functions.window_functions import WindowFunction
from windowlib.keyed.timers import STALE_MAX
from windowlib.profiles import STRICT, Profile
from windowlib.records.records import Mode
from windowlib.triggers.protocol import Trigger
from windowlib.windows.assigners import Assigner
from windowlib.windows.evictors import Evictor
from windowlib.windows.output_times import TimestampCombiner

Leftovers = Literal["refuse", "report", "fire"]
"""What to do with records that no pane has shown at cleanup: refuse such specs, count the records, or fire them."""

PENDING_MAX: Final = 32
"""The default of `pending_max`: so many records of a window wait to enter its contents together.

With more, aggregates are hardly cheaper, and the waiting records leave the processor's caches.
"""
WAITING_MAX: Final = 1 << 17
"""The default of `waiting_max`: so many records, each counted once for each of its windows, may wait for the end of
their windows between two calls of `drain`. Beyond that, they enter the contents of their windows, which are smaller.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Windowing:
    """The checked parts of a window operator. `spec.WindowSpec.build` creates it."""

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
    pending_max: int = PENDING_MAX
    waiting_max: int = WAITING_MAX
