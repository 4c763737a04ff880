"""Shared parts of the pipeline grammar: the strict base model, types of names, units, functions, and checks."""

import re
import unicodedata
from collections.abc import Mapping
from enum import Enum
from typing import Annotated, ClassVar, Final, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    Strict,
    StringConstraints,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)

from jobs.plain_text import shortened
from windowlib.bounds import MAX_TIME_MS


class GrammarModel(BaseModel):
    """Base of all parts of a pipeline file: refuses unknown keys, converts no types, and is immutable."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        populate_by_name=False,
        validate_default=False,
        hide_input_in_errors=True,  # a traceback in a log would show credentials of a URI
    )


def refuse_control_characters(value: str) -> str:
    """Return the text if it has no control character. Line breaks and tabs are control characters."""
    if any(unicodedata.category(character) == "Cc" for character in value):
        raise ValueError(f"must not have control characters, found {shortened(value)!r}")
    return value


def refuse_controls_but_lines(value: str) -> str:
    """Return the text if it has no control characters except line breaks and tabs."""
    refuse_control_characters(value.translate({ord("\n"): " ", ord("\t"): " "}))
    return value


class Unit(Enum):
    """The unit of an integer time or duration. A time counts from 1970-01-01T00:00:00Z."""

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

Count = Annotated[int, Field(ge=1, le=MAX_TIME_MS)]
"""A number of records: a whole number of 64 bits."""

IS_STORED: Final = "is_stored"
"""The key of the validation context that tells that a ledger stores the spec, so that it is no file to be corrected."""


def is_stored(info: ValidationInfo) -> bool:
    """Return whether a spec of a ledger is read, which an earlier version may have accepted in a file."""
    return bool((info.context or {}).get(IS_STORED))


class Nothing(GrammarModel):
    """A part without keys: `{}`."""


_FUNCTION_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)


class PlainName(GrammarModel):
    """A part that a file may write as a text, which its first field holds."""

    @model_validator(mode="before")
    @classmethod
    def _accept_plain_name(cls, value: object) -> object:
        return {next(iter(cls.model_fields)): value} if isinstance(value, str) else value


class FunctionGrammar(PlainName):
    """A user's function or class: `module:name`, or a mapping with more keys.

    `columns` are the columns that it reads from a record. The text of its module is part of the pipeline's
    fingerprint; if `version` is given, the version is used instead. Reading a pipeline file imports nothing.
    `jobs.engine.user_functions` imports the module when a replay is planned.
    """

    name: str
    columns: Columns | None = None
    version: str | None = None

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
        """The dotted name of the function's module."""
        return self.name.partition(":")[0]


def not_a_mapping(value: object, form: str) -> None:
    """Refuse a value that is not a text and not a mapping. pydantic's own message would not have the allowed forms."""
    if not isinstance(value, str | Mapping):
        raise ValueError(f"{form}; found {value!r}")  # noqa: TRY004  (pydantic takes ValueError)


def not_yet(what: str, instead: str) -> ValueError:
    """Return the error for a part of the grammar that is not built yet; `instead` is what to write today."""
    return ValueError(f"{what} is part of the grammar but not built yet; {instead}")


class Choice(GrammarModel):
    """A part of which exactly one field is set, or exactly one of `ONE_OF`. `WHAT` names the choice in the message."""

    ONE_OF: ClassVar[tuple[str, ...]] = ()
    WHAT: ClassVar[str]

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        one_of(self, self.WHAT)
        return self


class WordOrKeys(Choice):
    """A choice that a file may write as one of `WORDS`, which its first field holds. `FORMS` are examples of all."""

    WORDS: ClassVar[tuple[str, ...]]
    FORMS: ClassVar[str]

    @model_validator(mode="before")
    @classmethod
    def _accept_a_word(cls, value: object) -> object:
        not_a_mapping(value, f"allowed: {cls.FORMS}")
        if not isinstance(value, str):
            return value
        if value not in cls.WORDS:
            raise ValueError(f"found {value!r}; allowed: {cls.FORMS}")
        return {next(iter(cls.model_fields)): value}

    @model_serializer(mode="wrap")
    def _as_a_word(self, handler: SerializerFunctionWrapHandler) -> object:
        return getattr(self, next(iter(type(self).model_fields))) or handler(self)


def keys_of_choice(model: type[Choice]) -> dict[str, str]:
    """Return the fields of a choice, and the keys that a file has for them."""
    fields = model.model_fields
    return {name: fields[name].alias or name for name in model.ONE_OF or fields}


def one_of(model: Choice, what: str) -> None:
    """Refuse a choice unless exactly one of its fields is set; `what` names the choice in the message."""
    keys = keys_of_choice(type(model))
    given = [key for name, key in keys.items() if getattr(model, name) is not None]
    if len(given) != 1:
        choice = f"found {' and '.join(given)}" if given else "found none of them"
        raise ValueError(f"needs exactly one {what}; allowed: {', '.join(keys.values())}; {choice}")
