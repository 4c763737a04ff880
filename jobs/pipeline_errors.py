"""What pydantic found wrong with a pipeline file, as one paragraph: the key's path, what was found, what is allowed."""

from collections.abc import Iterator, Mapping
from typing import get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from jobs import pipeline_models as grammar
from jobs.suggestions import did_you_mean

MAX_SHOWN = 5
MAX_TEXT = 80

_NOT_YET: Mapping[type[BaseModel], Mapping[str, str]] = {
    grammar.Pipeline: dict.fromkeys(("process", "retention", "publish", "leftovers"), "leave it out"),
    grammar.WatermarkGrammar: {"sources": "leave it out: the log is one source today"},
    grammar.WindowsGrammar: dict.fromkeys(
        ("dynamic_session", "count", "global", "storm", "atlas"), "allowed today: tumbling, sliding, session"
    )
    | dict.fromkeys(
        ("trigger", "evictor", "timestamp_combiner"), "leave it out: a window fires when the watermark passes it"
    ),
    grammar.Tumbling: {"stagger": "leave it out"},
    grammar.Sliding: {"stagger": "leave it out"},
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
        yield f"{path or 'the file'}: {_message(details, owner, path.rpartition('.')[2])}"


def _message(details: ErrorDetails, owner: type[BaseModel], key: str) -> str:
    kind, found, context = details["type"], details["input"], details.get("ctx", {})
    match kind:
        case "extra_forbidden":
            said = _unknown_key(key, owner)
        case "missing":
            said = f"is missing; {_names(owner)}"
        case "value_error":
            said = str(context["error"])
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
    return f"unknown key {key!r}; {_names(owner)}{did_you_mean(key, _keys(owner))}"


def _names(owner: type[BaseModel]) -> str:
    return f"allowed keys here: {', '.join(_keys(owner))}"


def _keys(owner: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in owner.model_fields.items()]


def _literals(expected: str) -> list[str]:
    return [word.strip("'") for word in expected.replace(" or ", ", ").split(", ")]


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"


def _walk(location: tuple[int | str, ...], model: type[BaseModel]) -> tuple[str, type[BaseModel]]:
    """The path of keys as the file has them, and the model that holds the last one; union branches are left out."""
    path, owner = "", model
    current: type[BaseModel] | None = model
    for index, part in enumerate(location):
        if isinstance(part, int):
            path += f"[{part}]"
            continue
        if current is None:
            is_entry = index > 0 and location[index - 1] == "aggregates"
            if not is_entry:
                continue
            owner = grammar.AggregateGrammar
            path += f".{part}"
            continue
        owner = current
        path += f".{part}" if path else part
        current = _part_model(current, part)
    return path, owner


def _part_model(model: type[BaseModel], key: str) -> type[BaseModel] | None:
    for name, field in model.model_fields.items():
        if key in {name, field.alias}:
            candidates = (field.annotation, *get_args(field.annotation))
            return next((one for one in candidates if isinstance(one, type) and issubclass(one, BaseModel)), None)
    return None
