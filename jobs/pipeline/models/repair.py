"""The `repair` part of a pipeline file: what the schedule does about late records of published slices."""

from typing import Final

from pydantic import Field

from jobs.durations import UNIT_MS, PositiveDuration
from jobs.pipeline.models.grammar import GrammarModel
from jobs.pipeline.models.restate import MAX_AGE_MS, Mode

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
