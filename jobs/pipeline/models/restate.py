"""The parts `restate` and `repair`: what the schedule does about changed and late records of published slices."""

from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field

from jobs.durations import UNIT_MS, PositiveDuration
from jobs.pipeline.models.grammar import GrammarModel

MAX_AGE_MS: Final = 30 * UNIT_MS["d"]
MAX_SLICES: Final = 31


def _off(value: object) -> object:
    """Return `off` for the YAML word `off`, which YAML 1.1 reads as false."""
    return "off" if value is False else value


Mode = Annotated[Literal["propose", "auto", "off"], BeforeValidator(_off)]


class RestateGrammar(GrammarModel):
    """What the schedule does about changed slices. Every mode shows them.

    Attributes:
        mode: `propose` opens a request that a person replays and publishes; `auto` replays and publishes it, too;
            `off` opens none.
        at_most_age_ms: a slice that ended earlier than this is not proposed.
        at_most_slices: if more slices have changed, none is proposed.
    """

    mode: Mode = "propose"
    at_most_age_ms: PositiveDuration = Field(default=MAX_AGE_MS, alias="at_most_age")
    at_most_slices: Annotated[int, Field(ge=1, le=10_000)] = MAX_SLICES


DAILY_BUDGET_MS: Final = 2 * UNIT_MS["h"]


class RepairGrammar(GrammarModel):
    """What the schedule does about late records. Without this part, it does nothing.

    Attributes:
        mode: `propose` opens a request that a person replays and publishes; `auto` replays and publishes it, too;
            `off` opens none.
        at_most_age_ms: the late records of a slice that ended earlier than this stay late.
        at_most_lateness_ms: records that are later than this stay late. A greater lateness needs a longer warm-up.
        daily_budget_ms: one request has the oldest slices that past runs replay in this time, with their warm-up.
    """

    mode: Mode = "propose"
    at_most_age_ms: PositiveDuration = Field(default=MAX_AGE_MS, alias="at_most_age")
    at_most_lateness_ms: PositiveDuration = Field(default=MAX_AGE_MS, alias="at_most_lateness")
    daily_budget_ms: PositiveDuration = Field(default=DAILY_BUDGET_MS, alias="daily_budget")
