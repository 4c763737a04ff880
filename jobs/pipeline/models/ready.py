"""The `log.ready` part of a pipeline file: the conditions under which a slice that is over counts as complete."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    SerializerFunctionWrapHandler,
    Strict,
    ValidationInfo,
    model_serializer,
    model_validator,
)

from jobs.durations import Duration, PositiveDuration
from jobs.pipeline.models.grammar import Choice, ColumnName, GrammarModel, is_stored, one_of
from jobs.plain_text import shortened

MAX_DEPTH = 4
"""So many `all` and `any` may be nested in each other."""
MAX_URI = 1_500
"""Airflow stores an asset's URI in a column of this length."""

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[!-~]+", re.ASCII)


def _check_asset_uri(value: str) -> str:
    if len(value) > MAX_URI:
        raise ValueError(f"the URI of an asset has at most {MAX_URI:,} characters, found {len(value):,}")
    if not _URI.fullmatch(value) or value.lower().startswith("airflow:"):
        raise ValueError(
            "expected the URI of an Airflow asset, such as s3://events/flights or hindcast://flights/published, "
            f"found {shortened(value)!r}"
        )
    return value


def _check_marker(value: str, info: ValidationInfo) -> str:
    if "{slice_id}" not in value and not is_stored(info):
        raise ValueError(
            "expected a path with {slice_id}, such as done/{slice_id}, because each slice has its own marker; found "
            f"{shortened(value)!r}"
        )
    return value


AssetUri = Annotated[str, AfterValidator(_check_asset_uri)]
"""The URI of an Airflow asset: a scheme and printable ASCII characters without a space."""


class MinRecordsGrammar(GrammarModel):
    """The least number of records of a complete slice: a number, or a share of the usual number of its weekday.

    `of` names the usual number: `weekday_median` is the median over the slices of the same weekday and time of day in
    the `weeks` weeks before, without those that have no record.
    """

    number: Annotated[int, Field(ge=1)] | None = None
    share: Annotated[float, Strict(strict=False), Field(gt=0, le=10, allow_inf_nan=False)] | None = None
    of: Literal["weekday_median"] = "weekday_median"
    weeks: Annotated[int, Field(ge=1, le=52)] = 4

    @model_validator(mode="before")
    @classmethod
    def _accept_number(cls, value: object) -> object:
        if isinstance(value, Mapping):
            return value
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(
                f"expected a whole number from 1 on, or {{share: 0.5, of: weekday_median, weeks: 4}}; found {value!r}"
            )
        return {"number": value}

    @model_validator(mode="after")
    def _has_limit(self) -> Self:
        if (self.number is None) == (self.share is None):
            raise ValueError("needs number or share, not both, such as {share: 0.5, of: weekday_median, weeks: 4}")
        return self

    @model_serializer(mode="wrap")
    def _as_number(self, handler: SerializerFunctionWrapHandler) -> object:
        if self.number is not None:
            return self.number
        return {key: part for key, part in handler(self).items() if key != "number"}


def _check_count(value: "tuple[ConditionGrammar, ...]") -> "tuple[ConditionGrammar, ...]":
    if not value:
        raise ValueError("expected a list of conditions, such as [{after: 2h}, {min_records: 100}]; found []")
    return value


class ConditionGrammar(Choice):
    """One condition on a slice, or several that must all hold (`all`), or of which one must hold (`any`)."""

    ONE_OF: ClassVar[tuple[str, ...]] = (
        "after_ms", "newer_commit", "marker", "min_records", "producer", "all_of", "any_of"
    )  # fmt: skip
    WHAT = "sign of completeness"

    after_ms: Duration | None = Field(default=None, alias="after")
    newer_commit: Literal[True] | None = None
    marker: Annotated[ColumnName, AfterValidator(_check_marker)] | None = None
    min_records: MinRecordsGrammar | None = None
    producer: AssetUri | None = None
    all_of: "_Conditions | None" = Field(default=None, alias="all")
    any_of: "_Conditions | None" = Field(default=None, alias="any")

    def leaves(self) -> "Iterator[ConditionGrammar]":
        """Return the conditions without `all` and `any`, in the order of the file."""
        parts = self.all_of or self.any_of
        if not parts:
            yield self
        for part in parts or ():
            yield from part.leaves()

    @property
    def depth(self) -> int:
        """How many `all` and `any` are nested in each other."""
        parts = self.all_of or self.any_of or ()
        return 1 + max(part.depth for part in parts) if parts else 0


_Conditions = Annotated[
    tuple[ConditionGrammar, ...], Strict(strict=False), Field(max_length=8), AfterValidator(_check_count)
]
ConditionGrammar.model_rebuild()


class ReadyGrammar(ConditionGrammar):
    """When a slice that is over counts as complete, the longest time to wait for that, and what happens then.

    With a timeout and no condition, the condition is the one of a pipeline without `ready`. `then`: `wait` goes on
    waiting, `publish_empty` publishes the slice as it is, `hold` replays it, and a person decides.
    """

    timeout_ms: PositiveDuration | None = Field(default=None, alias="timeout")
    then: Literal["wait", "publish_empty", "hold"] = "wait"

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if self.timeout_ms is None and self.then != "wait":
            raise ValueError(f"then: {self.then} needs a timeout, such as timeout: 12h")
        if self.depth > MAX_DEPTH:
            raise ValueError(f"nests all and any {self.depth} times in each other; allowed are {MAX_DEPTH}")
        if self.has_condition or self.timeout_ms is None:
            one_of(self, "sign of completeness (all and any combine several)")
        return self

    @property
    def has_condition(self) -> bool:
        """Whether the file states a condition, not only a timeout."""
        return any(getattr(self, name) is not None for name in self.ONE_OF)

    @property
    def producers(self) -> tuple[str, ...]:
        """The URIs of the assets whose events complete a slice."""
        leaves = self.leaves() if self.has_condition else ()
        return tuple(dict.fromkeys(leaf.producer for leaf in leaves if leaf.producer is not None))
