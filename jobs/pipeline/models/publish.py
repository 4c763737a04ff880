"""The `publish` part of a pipeline file: what a publication may change of settled windows, and which tables show it."""

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import Field, Strict, model_validator

from jobs.durations import PositiveDuration
from jobs.pipeline.models.grammar import ColumnName, GrammarModel

Part = Annotated[float, Strict(strict=False), Field(ge=0, allow_inf_nan=False)]
"""A limit as a part of one: 0.05 is 5 %."""


class ChangeGrammar(GrammarModel):
    """How much of the settled windows a publication may change. docs/reference/comparing.md defines both.

    `share`: the changed windows, as a part of all settled windows that readers see. `columns`: for a column, the sum of
    the absolute changes, as a part of the sum of the absolute values that readers see.
    """

    share: Annotated[Part, Field(le=1)] | None = None
    columns: Mapping[ColumnName, Part] = {}

    @model_validator(mode="after")
    def _limits_something(self) -> Self:
        if self.share is None and not self.columns:
            raise ValueError(
                "needs a limit: share, such as {share: 0.01}, or columns, such as {columns: {total: 0.05}}"
            )
        return self


class SettledGrammar(GrammarModel):
    """Windows that ended `after_ms` or more before the end of the newest slice that readers see are settled."""

    after_ms: PositiveDuration = Field(alias="after")
    change_at_most: ChangeGrammar


class PublishGrammar(GrammarModel):
    """The rules of publication besides the checks, and the tables of which a plain copy shows what readers see."""

    settled: SettledGrammar | None = None
    current_tables: Annotated[tuple[str, ...], Strict(strict=False)] = ()
