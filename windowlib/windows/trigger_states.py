"""The values that the triggers of this library store for a window, to check those of a checkpoint."""

from collections.abc import Mapping
from typing import Any, Final

from windowlib.beam.composite import Composite
from windowlib.keyed.state_rules import COUNT, FLAG, INSTANT, NUMBER, STATE, fits
from windowlib.triggers.protocol import FINISHED, HOLD, TIMEOUT, TIMEOUT_SHARED, Trigger

STARTS_ANEW: Final = "$starts_anew"
"""The name of OpenWindow.starts_anew in a snapshot's `trigger_state`. It is stored only if it is True."""
_ALLOWED: Final[Mapping[str, str]] = {
    "count": COUNT, "turn": COUNT,
    "next_firing_ms": INSTANT, TIMEOUT: INSTANT, HOLD: INSTANT, "deadline_ms": INSTANT,
    "last_fired": NUMBER,
    FINISHED: FLAG, "is_late": FLAG, TIMEOUT_SHARED: FLAG, "waits_for_end": FLAG,
    "part": STATE, "inner": STATE, "early": STATE, "late": STATE,
}  # fmt: skip


def trigger_problem(trigger: Trigger, state: Mapping[str, Any]) -> str | None:
    """Return what is allowed in place of a wrong value in a window's trigger state; None if there is none.

    The state of a user's trigger can be anything.
    """
    if not fits(state.get(STARTS_ANEW, False), FLAG):
        return f"{FLAG} for {STARTS_ANEW}"
    return _problem(state) if _is_ours(trigger) else None


def _problem(state: Mapping[str, Any]) -> str | None:
    for name, value in state.items():
        allowed = STATE if name.isdecimal() else _ALLOWED.get(name)
        if allowed is not None and not fits(value, allowed):
            return f"{allowed} for {name}"
        inside = _problem(value) if isinstance(value, dict) else None
        if inside is not None:
            return inside
    return None


def _is_ours(trigger: Trigger) -> bool:
    """Return whether a trigger and the triggers inside it are of this library."""
    inner = trigger.parts().values() if isinstance(trigger, Composite) else [getattr(trigger, "inner", None)]
    is_own = type(trigger).__module__.startswith("windowlib.")
    return is_own and all(_is_ours(part) for part in inner if isinstance(part, Trigger))
