"""Translates a pydantic ValidationError of a pipeline file into one paragraph: path of the key, found, allowed."""

from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Annotated, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from jobs.pipeline.models.suggestions import did_you_mean
from jobs.plain_text import first_of, shortened, without_credentials

MAX_SHOWN = 5
MAX_TEXT = 80
MAX_MESSAGE = 600

_EXPECTED = {
    "string_type": "a text",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "model_type": "a mapping of keys",
    "model_attributes_type": "a mapping of keys",
    "mapping_type": "a mapping of names",
    "dict_type": "a mapping of names",
    "tuple_type": "a list",
}

_NO_MAPPING = ("model_type", "model_attributes_type")


def describe(error: ValidationError, model: type[BaseModel]) -> str:
    """Return all errors as one text, each with the path of its key. At most five are written out, the rest counted."""
    return first_of([*dict.fromkeys(_messages(error, model))], MAX_SHOWN, separator="; ")


def _messages(error: ValidationError, model: type[BaseModel]) -> Iterator[str]:
    for details in error.errors(include_url=False):
        if details["type"] == "too_short" and details["ctx"]["actual_length"] < len(details["input"]):
            continue  # pydantic counts only the valid items; the others have errors of their own
        path, owner, value_model = _walk(details["loc"], model)
        message = _message(details, owner, path.rpartition(".")[2])
        if details["type"] in _NO_MAPPING and value_model is not None:
            message += f"; {_names(value_model)}"
        yield f"{shortened(path)}: {message}" if path else message


def _message(details: ErrorDetails, owner: type[BaseModel], key: str) -> str:
    kind, value, context = details["type"], details["input"], details.get("ctx", {})
    match kind:
        case "extra_forbidden":
            suggestion = did_you_mean(key, _keys(owner))
            message = f"unknown key {shortened(key, MAX_TEXT)!r}; {_names(owner)}{suggestion}"
        case "missing":
            message = f"is missing; {_names(owner)}"
        case "value_error":
            message = shortened(str(context["error"]), MAX_MESSAGE)
        case "literal_error":
            # pydantic gives the allowed values only as a text: 'a', 'b' or 'c'.
            allowed = [word.strip("'") for word in context["expected"].replace(" or ", ", ").split(", ")]
            hint = did_you_mean(str(value), allowed)
            message = f"found {_shown(value)}; allowed: {context['expected']}{hint}"
        case "string_pattern_mismatch":
            what = "lower-case letters, digits and _, a letter first, at most 63 characters"
            message = f"found {_shown(value)}; allowed: {what}"
        case _ if kind in _EXPECTED:
            message = f"expected {_EXPECTED[kind]}{_example(kind, value)}, found {_shown(value)}"
        case _:
            # pydantic's own words: limits of numbers and lengths, such as "input should be greater than 0".
            message = f"{details['msg'][0].lower()}{details['msg'][1:]}, found {_shown(value)}"
    return message


def _example(kind: str, value: object) -> str:
    if kind == "tuple_type" and isinstance(value, str):  # `key: user_id`
        return f", such as [{_shown(value)[1:-1]}]"
    is_number = kind == "string_type" and type(value) in (int, float)  # `expected: [0]`
    return f', such as "{_shown(value)}"' if is_number else ""


def _names(owner: type[BaseModel]) -> str:
    return f"allowed keys here: {', '.join(_keys(owner))}"


def _keys(owner: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in owner.model_fields.items()]


def _shown(value: object) -> str:
    return shortened(repr(without_credentials(value) if isinstance(value, str) else value), MAX_TEXT)


def _walk(
    location: tuple[int | str, ...], model: type[BaseModel]
) -> tuple[str, type[BaseModel], type[BaseModel] | None]:
    """The path of keys as in the file, without pydantic's names of union branches, and two models.

    They are that of the last key, and that of the value there, if it is to be a mapping.
    """
    path, owner = "", model
    current: object = model
    for index, part in enumerate(location):
        if isinstance(part, int):
            path += f"[{part}]"
            current = _inside(current, tuple)
            continue
        holder = _model_in(current)
        is_key = holder is not None and (_field(holder, part) is not None or index == len(location) - 1)
        if holder is not None and is_key:
            owner, current = holder, _field(holder, part)
        elif (entries := _inside(current, Mapping)) is not None:
            current = entries
        else:
            continue
        path += f".{part}" if path else part
    return path, owner, _model_in(current)


def _parts(annotation: object) -> Iterator[object]:
    """The types in an annotation, without Union and Annotated around them."""
    if get_origin(annotation) in (Union, UnionType, Annotated):
        for part in get_args(annotation):
            yield from _parts(part)
    else:
        yield annotation


def _model_in(annotation: object) -> type[BaseModel] | None:
    return next((part for part in _parts(annotation) if isinstance(part, type) and issubclass(part, BaseModel)), None)


def _inside(annotation: object, container: type) -> object:
    """The type of a container's elements (of a tuple) or values (of a mapping); None without such a container."""
    for part in _parts(annotation):
        origin = get_origin(part)
        if isinstance(origin, type) and issubclass(origin, container):
            return get_args(part)[1 if container is Mapping else 0]
    return None


def _field(model: type[BaseModel], key: str) -> object:
    for name, field in model.model_fields.items():
        if key in {name, field.alias}:
            return field.annotation
    return None
