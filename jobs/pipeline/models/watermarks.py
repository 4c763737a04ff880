"""The `watermark` part of a pipeline file: how the watermark is computed."""

from typing import Annotated, Final, Literal, Self

from pydantic import Field, Strict, ValidationInfo, field_validator, model_validator

from jobs.durations import Duration, PositiveDuration
from jobs.pipeline.models.grammar import ColumnName, FunctionGrammar, GrammarModel, UnitName, WordOrKeys, is_stored

Kind = Literal["bounded", "ascending", "legacy_bounded", "punctuated", "periodic", "column", "ingestion"]

_NEEDED: Final = {
    "bounded": ("out_of_orderness", "how far records may be out of order, such as 6h"),
    "legacy_bounded": ("out_of_orderness", "how far records may be out of order, such as 6h"),
    "punctuated": ("function", "module:name of a function from (event time, columns) to a watermark or None"),
    "periodic": ("function", "module:name of a function from the greatest event time to a watermark or None"),
    "column": ("column", "the column with the watermark"),
    "ingestion": ("every", "the interval at which the watermark is set to the clock, such as 200ms"),
}
_BELONGS_TO: Final = {
    "out_of_orderness": ("bounded", "legacy_bounded"),
    "function": ("punctuated", "periodic"),
    "column": ("column",),
    "unit": ("column",),
    "every": ("ingestion",),
}


class EmitGrammar(WordOrKeys):
    """When the watermark is emitted: with records, at ticks of the clock, or after a commit of the log."""

    WORDS = ("every_record", "commit")
    FORMS = "every_record, commit, {records: 100}, {every: 200ms}"
    WHAT = f"of {FORMS}"

    on: Literal["every_record", "commit"] | None = None
    records: Annotated[int, Field(ge=1)] | None = None
    every_ms: PositiveDuration | None = Field(default=None, alias="every")

    @property
    def is_every_record(self) -> bool:
        """Whether the watermark is emitted with every record."""
        return self.on == "every_record" or self.records == 1


class SourcesGrammar(GrammarModel):
    """Several sources in one log. Each has its own watermark; the least of those that are not idle is used."""

    column: ColumnName
    expected: Annotated[tuple[ColumnName, ...], Strict(strict=False), Field(min_length=1, max_length=10_000)] | None = (
        None
    )
    idle_timeout_ms: PositiveDuration | None = Field(default=None, alias="idle_timeout")

    @field_validator("expected")
    @classmethod
    def _each_once(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        twice = sorted({name for name in value or () if (value or ()).count(name) > 1})
        if twice:
            raise ValueError(f"{', '.join(twice)} is given twice; name each source once")
        return value


class WatermarkGrammar(GrammarModel):
    """How the watermark is computed, when it is emitted, and from which sources."""

    kind: Kind
    out_of_orderness_ms: Duration | None = Field(default=None, alias="out_of_orderness")
    function: FunctionGrammar | None = None
    column: ColumnName | None = None
    unit: UnitName | None = None
    every_ms: PositiveDuration | None = Field(default=None, alias="every")
    emit: EmitGrammar = EmitGrammar(on="every_record")
    sources: SourcesGrammar | None = None

    @model_validator(mode="after")
    def _keys_fit_kind(self) -> Self:
        given = {
            (field.alias or name) for name, field in type(self).model_fields.items() if getattr(self, name) is not None
        }
        key, meaning = _NEEDED.get(self.kind, ("kind", ""))
        if key not in given:
            raise ValueError(f"kind: {self.kind} needs {key}, {meaning}")
        for other, kinds in _BELONGS_TO.items():
            if other in given and self.kind not in kinds:
                raise ValueError(f"kind: {self.kind} takes no {other}; it belongs to kind: {' or '.join(kinds)}")
        return self

    @model_validator(mode="after")
    def _emission_fits_kind(self) -> Self:
        if self.kind == "ingestion" and (not self.emit.is_every_record or self.sources is not None):
            raise ValueError("kind: ingestion takes no emit and no sources; it is set to the clock at every tick")
        is_immediate = self.emit.is_every_record or self.emit.every_ms is not None
        if self.kind in ("punctuated", "column") and not is_immediate:
            raise ValueError(
                f"kind: {self.kind} is emitted with the record that has the watermark; leave emit out, or write "
                "emit: {every: 200ms} for the ticks that idle_timeout needs"
            )
        if self.function is not None and self.kind == "periodic" and self.function.columns is not None:
            raise ValueError("a periodic function gets only the greatest event time; leave out its columns")
        return self

    @model_validator(mode="after")
    def _ticks_for_idleness(self, info: ValidationInfo) -> Self:
        has_idleness = self.sources is not None and self.sources.idle_timeout_ms is not None
        is_with_record = self.kind in ("punctuated", "column")
        if is_with_record and self.emit.every_ms is not None and not has_idleness and not is_stored(info):
            raise ValueError(
                f"emit: found every; kind: {self.kind} is emitted with the record that has the watermark, and ticks "
                "are only for sources.idle_timeout; leave emit out"
            )
        return self

    @property
    def needs_clock(self) -> bool:
        """Whether the watermark depends on the replay's clock."""
        is_ticking = self.kind == "ingestion" or self.emit.every_ms is not None
        return is_ticking or (self.sources is not None and self.sources.idle_timeout_ms is not None)
