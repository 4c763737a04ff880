"""What pydantic found wrong with a pipeline file, as one paragraph: the key's path, what was found, what is allowed."""

from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Annotated, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.models.suggestions import did_you_mean
from jobs.plain_text import shortened

MAX_SHOWN = 5
MAX_TEXT = 80
MAX_SAID = 600

_NOT_YET: Mapping[type[BaseModel], Mapping[str, str]] = {
    Pipeline: dict.fromkeys(("retention", "publish"), "leave it out"),
}

_EXPECTED = {
    "string_type": "a text",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "model_type": "a mapping of keys",
    "model_attributes_type": "a mapping of keys",
    "mapping_type": "a mapping of names",
    "dict_type": "a mapping of names",
    "tuple_type": "a list of column names",
}


def describe(error: ValidationError, model: type[BaseModel]) -> str:
    """Everything that is wrong, each with the path of its key; at most five are spelt out."""
    found = dict.fromkeys(_messages(error, model))
    shown = list(found)[:MAX_SHOWN]
    more = f"; and {len(found) - MAX_SHOWN} more" if len(found) > MAX_SHOWN else ""
    return "; ".join(shown) + more


def _messages(error: ValidationError, model: type[BaseModel]) -> Iterator[str]:
    for details in error.errors(include_url=False):
        path, owner = _walk(details["loc"], model)
        yield f"{shortened(path) or 'the file'}: {_message(details, owner, path.rpartition('.')[2])}"


def _message(details: ErrorDetails, owner: type[BaseModel], key: str) -> str:
    kind, found, context = details["type"], details["input"], details.get("ctx", {})
    match kind:
        case "extra_forbidden":
            said = _unknown_key(key, owner)
        case "missing":
            said = f"is missing; {_names(owner)}"
        case "value_error":
            said = shortened(str(context["error"]), MAX_SAID)
        case "literal_error":
            hint = did_you_mean(str(found), _literals(context["expected"]))
            said = f"found {_shown(found)}; allowed: {context['expected']}{hint}"
        case "string_pattern_mismatch":
            said = f"found {_shown(found)}; allowed: lower-case letters, digits and _, a letter first, at most 63 long"
        case _ if kind in _EXPECTED:
            said = f"expected {_EXPECTED[kind]}, found {_shown(found)}"
        case _:
            message = details["msg"]
            said = f"{message[0].lower()}{message[1:]}, found {_shown(found)}"
    return said


def _unknown_key(key: str, owner: type[BaseModel]) -> str:
    later = _NOT_YET.get(owner, {})
    if key in later:
        return f"{key} is part of the grammar but not built yet; {later[key]}"
    return f"unknown key {shortened(key, MAX_TEXT)!r}; {_names(owner)}{did_you_mean(key, _keys(owner))}"


def _names(owner: type[BaseModel]) -> str:
    return f"allowed keys here: {', '.join(_keys(owner))}"


def _keys(owner: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in owner.model_fields.items()]


def _literals(expected: str) -> list[str]:
    return [word.strip("'") for word in expected.replace(" or ", ", ").split(", ")]


def _shown(value: object) -> str:
    return shortened(repr(value), MAX_TEXT)


def _walk(location: tuple[int | str, ...], model: type[BaseModel]) -> tuple[str, type[BaseModel]]:
    """The path of keys as the file has them, and the model that holds the last one; union branches are left out."""
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
    return path, owner


def _parts(annotation: object) -> Iterator[object]:
    """The types that an annotation allows, out of unions and Annotated."""
    if get_origin(annotation) in (Union, UnionType, Annotated):
        for one in get_args(annotation):
            yield from _parts(one)
    else:
        yield annotation


def _model_in(annotation: object) -> type[BaseModel] | None:
    return next((one for one in _parts(annotation) if isinstance(one, type) and issubclass(one, BaseModel)), None)


def _inside(annotation: object, container: type) -> object:
    """What the container in an annotation holds: the elements of a tuple, the values of a mapping."""
    for one in _parts(annotation):
        origin = get_origin(one)
        if isinstance(origin, type) and issubclass(origin, container):
            return get_args(one)[1 if container is Mapping else 0]
    return None


def _field(model: type[BaseModel], key: str) -> object:
    for name, field in model.model_fields.items():
        if key in {name, field.alias}:
            return field.annotation
    return None
