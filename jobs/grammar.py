"""What the models of the pipeline grammar share: the strict base, names of columns, two ways to refuse."""

import unicodedata
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict, StringConstraints


class GrammarModel(BaseModel):
    """A part of a pipeline file: unknown keys refused, nothing converted silently, no change after reading."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, populate_by_name=False, validate_default=False)


def refuse_control_characters(value: str) -> str:
    """The text itself, when it has no control character such as a line break."""
    if any(unicodedata.category(character) == "Cc" for character in value):
        raise ValueError(f"must not hold control characters, found {value!r}")
    return value


ColumnName = Annotated[str, StringConstraints(min_length=1, max_length=255), AfterValidator(refuse_control_characters)]
Columns = Annotated[tuple[ColumnName, ...], Strict(strict=False), Field(min_length=1, max_length=64)]


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
