"""What the models of the pipeline grammar share: the strict base, names of columns, functions, units, refusals."""

import re
import unicodedata
from collections.abc import Mapping
from enum import Enum
from typing import Annotated

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    Strict,
    StringConstraints,
    field_validator,
    model_serializer,
    model_validator,
)

from jobs.plain_text import shortened


class GrammarModel(BaseModel):
    """A part of a pipeline file: unknown keys refused, nothing converted silently, no change after reading."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, populate_by_name=False, validate_default=False)


def refuse_control_characters(value: str) -> str:
    """The text itself, when it has no control character such as a line break."""
    if any(unicodedata.category(character) == "Cc" for character in value):
        raise ValueError(f"must not hold control characters, found {shortened(value)!r}")
    return value


def refuse_controls_but_lines(value: str) -> str:
    """The text itself, when it has no control character but line breaks and tabs."""
    refuse_control_characters(value.translate({ord("\n"): " ", ord("\t"): " "}))
    return value


class Unit(Enum):
    """What an integer time counts, since 1970-01-01T00:00:00Z or since any instant."""

    S = "s"
    MS = "ms"
    US = "us"
    NS = "ns"


def _unit(value: object) -> object:
    try:
        return Unit(value)
    except ValueError:
        raise ValueError(f"unknown unit {value!r}; allowed: {', '.join(unit.value for unit in Unit)}") from None


UnitName = Annotated[Unit, BeforeValidator(_unit)]
ColumnName = Annotated[str, StringConstraints(min_length=1, max_length=255), AfterValidator(refuse_control_characters)]
Columns = Annotated[tuple[ColumnName, ...], Strict(strict=False), Field(min_length=1, max_length=64)]


class Nothing(GrammarModel):
    """A part that has nothing to say: `{}`."""


_FUNCTION_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)


class FunctionGrammar(GrammarModel):
    """A user's own function or class: `module:name`, or a mapping that says more.

    `columns` are what it reads of a record. Its source is part of the pipeline's fingerprint, unless `version` stands
    for it. Reading a pipeline file imports nothing (jobs.engine.user_functions does, when a replay is planned).
    """

    name: str
    columns: Columns | None = None
    version: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _accept_plain_name(cls, value: object) -> object:
        return {"name": value} if isinstance(value, str) else value

    @field_validator("name")
    @classmethod
    def _module_and_name(cls, value: str) -> str:
        if not _FUNCTION_NAME.fullmatch(value):
            raise ValueError(f"expected module:name, such as my_functions:is_gap, found {value!r}")
        return value

    @model_serializer(mode="wrap")
    def _as_plain_name(self, handler: SerializerFunctionWrapHandler) -> object:
        document = handler(self)
        return self.name if set(document) == {"name"} else document

    @property
    def module(self) -> str:
        """The dotted name of its module."""
        return self.name.partition(":")[0]


def only_text(value: object, key: str) -> object:
    """`{key: value}` for a text, else the value: a part that is mostly one word, and sometimes a mapping."""
    return {key: value} if isinstance(value, str) else value


def not_a_mapping(value: object, form: str) -> None:
    """Refuse what is neither a text nor a mapping, before pydantic says so in its own words."""
    if not isinstance(value, str | Mapping):
        raise ValueError(f"{form}; found {value!r}")  # noqa: TRY004  (pydantic takes ValueError)


def not_yet(what: str, instead: str) -> ValueError:
    """The error for a part of the grammar that comes later, and what to write today."""
    return ValueError(f"{what} is part of the grammar but not built yet; {instead}")


def one_of(model: GrammarModel, names: tuple[str, ...], what: str) -> None:
    """Refuse a model that has none or several of the given fields."""
    fields = type(model).model_fields
    keys = {name: fields[name].alias or name for name in names}
    given = [keys[name] for name in names if getattr(model, name) is not None]
    if len(given) != 1:
        found = f"found {' and '.join(given)}" if given else "found none of them"
        raise ValueError(f"needs exactly one {what}; allowed: {', '.join(keys.values())}; {found}")
