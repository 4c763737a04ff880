"""The `schedule` of a pipeline file: a cron expression, assets whose events start a run, or both."""

from typing import Annotated, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    Strict,
    model_serializer,
    model_validator,
)

from jobs.pipeline.models.cron import check_cron
from jobs.pipeline.models.grammar import GrammarModel
from jobs.pipeline.models.ready import AssetUri

MAX_ASSETS = 20


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


Assets = Annotated[
    tuple[AssetUri, ...], Strict(strict=False), Field(min_length=1, max_length=MAX_ASSETS), BeforeValidator(_as_list)
]


class ScheduleGrammar(GrammarModel):
    """When Airflow looks for new slices: at the times of `cron` (UTC), and when every one of `asset` has an event.

    A file may have the cron expression alone as a text, and the URIs of the assets alone as a list.
    """

    cron: Annotated[str, AfterValidator(check_cron)] | None = None
    assets: Assets | None = Field(default=None, alias="asset")

    @model_validator(mode="before")
    @classmethod
    def _accept_plain(cls, value: object) -> object:
        if isinstance(value, str):
            return {"cron": check_cron(value)}
        return {"asset": value} if isinstance(value, list) else value

    @model_validator(mode="after")
    def _starts_runs(self) -> Self:
        if self.cron is None and self.assets is None:
            raise ValueError('needs cron, such as "0 6 * * *", or asset, the URI of an asset of Airflow, or both')
        return self

    @model_serializer(mode="wrap")
    def _as_plain(self, handler: SerializerFunctionWrapHandler) -> object:
        return self.cron if self.assets is None else handler(self)

    def __str__(self) -> str:
        """Return the schedule for a sentence: `0 6 * * *`, or `0 6 * * * or s3://events`."""
        assets = " and ".join(self.assets or ())
        return " or ".join(part for part in (self.cron, assets) if part)
