"""The `retention` part of a pipeline file: how long rows are kept that readers do not see, and old states."""

from typing import Annotated, Final

from pydantic import AfterValidator, Field

from jobs.durations import UNIT_MS, PositiveDuration, format_duration
from jobs.pipeline.models.cron import check_cron
from jobs.pipeline.models.grammar import GrammarModel

NIGHTLY: Final = "0 4 * * *"
SHORTEST_MS: Final = UNIT_MS["d"]


def _at_least_a_day(value: int) -> int:
    if value < SHORTEST_MS:
        raise ValueError(
            f"must be at least {format_duration(SHORTEST_MS)}, because a reader may still be at work; found "
            f"{format_duration(value)}"
        )
    return value


KeptFor = Annotated[PositiveDuration, AfterValidator(_at_least_a_day)]


class RetentionGrammar(GrammarModel):
    """How long rows are kept. None: for ever.

    Attributes:
        superseded_ms: the rows of a run after another run has taken its place for readers, or after its rollback.
        unpublished_ms: the rows of an attempt that was never published and that no open request has.
        checkpoints_ms: the state before a published slice, after the publication of that slice.
        schedule: when the DAG `maintain_<name>` reads a share of the stored rows, and cleans up; cron, UTC.
    """

    superseded_ms: KeptFor | None = Field(default=None, alias="superseded")
    unpublished_ms: KeptFor | None = Field(default=None, alias="unpublished")
    checkpoints_ms: KeptFor | None = Field(default=None, alias="checkpoints")
    schedule: Annotated[str, AfterValidator(check_cron)] = NIGHTLY
