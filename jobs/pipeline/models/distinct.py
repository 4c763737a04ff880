"""The `log.distinct` part of a pipeline file: which records are duplicates of earlier ones."""

from pydantic import Field, field_validator

from jobs.durations import PositiveDuration
from jobs.pipeline.models.grammar import Columns, GrammarModel


class DistinctGrammar(GrammarModel):
    """A record is a duplicate if an earlier one with the same values arrived within a bound.

    Attributes:
        by: the columns whose values are compared. A record with a null in one of them is never a duplicate.
        within_ms: the bound.
    """

    by: Columns = Field(min_length=1)
    within_ms: PositiveDuration = Field(alias="within")

    @field_validator("by")
    @classmethod
    def _check_columns(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len({*value}) != len(value):
            raise ValueError(f"names a column twice: {list(value)}")
        return value
