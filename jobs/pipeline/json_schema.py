"""The JSON Schema of a pipeline file, for editors and for programs that write such files.

pydantic makes it from the models. This module adds what the models accept besides mappings (a duration as a text, a
function by its name) and the choices of which exactly one must be made. Rules about several keys are not in the schema:
`hindcast plan` tells them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema
from typing_extensions import override

from jobs import durations
from jobs.pipeline.models import alerts, grammar, log, process, ready, schedule, storm, watermarks, windows
from jobs.pipeline.models.pipeline import Pipeline

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_UNITS: Final = "|".join(durations.UNIT_MS)
_DURATION: Final = {"type": "string", "pattern": rf"^\s*[0-9]{{1,15}}\s*({_UNITS})\s*$", "examples": ["15m"]}
_POSITIVE: Final = {**_DURATION, "pattern": rf"^\s*(?=[0-9]*[1-9])[0-9]{{1,15}}\s*({_UNITS})\s*$"}
_SIGNED: Final = {**_DURATION, "pattern": rf"^\s*-?\s*[0-9]{{1,15}}\s*({_UNITS})\s*$"}
_ZERO: Final = {"type": "integer", "const": 0}
_NAME: Final = {"type": "string", "minLength": 1, "maxLength": 255}
_TEXT: Final = {"type": "string"}
_NO_KEYS: Final = {"type": "object", "maxProperties": 0}

_VALUES: Final[Mapping[str, JsonSchemaValue]] = {
    "_duration_or_zero": {"anyOf": [_DURATION, _ZERO]},
    "_positive_or_bare_zero": _POSITIVE,
    "_signed": {"anyOf": [_SIGNED, _ZERO]},
    "_off": {"enum": ["propose", "auto", "off", False]},
}
"""Name of the function that reads a value -> the values that it accepts."""

_SHORT: Final[Mapping[type, Sequence[JsonSchemaValue]]] = {
    grammar.FunctionGrammar: [{**_TEXT, "pattern": r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"}],
    log.TimeColumn: [_NAME],
    ready.MinRecordsGrammar: [{"type": "integer", "minimum": 1}],
    schedule.ScheduleGrammar: [_TEXT, {"type": "array", "items": _TEXT, "minItems": 1, "maxItems": 20}],
    storm.StormLength: [{"const": "every_tuple"}, _DURATION],
    watermarks.EmitGrammar: [{"enum": ["every_record", "commit"]}],
    windows.StaggerGrammar: [{"enum": ["aligned", "natural"]}],
    windows.GapGrammar: [_POSITIVE],
    alerts.Recipient: [_TEXT],
}
"""Part of a file -> what it may be instead of a mapping."""


class _FileSchema(GenerateJsonSchema):
    """The schema of a file that a person writes, by the aliases of the fields."""

    @override
    def function_before_schema(self, schema: core_schema.BeforeValidatorFunctionSchema) -> JsonSchemaValue:
        name = schema["function"]["function"].__name__
        if name in _VALUES:
            return dict(_VALUES[name])
        inner = super().function_before_schema(schema)
        return {"anyOf": [inner["items"], inner]} if name == "_as_list" else inner

    @override
    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        made, model = super().model_schema(schema), schema["cls"]
        if model is process.AggregateGrammar:
            made = _aggregate(made)
        elif model is log.LogGrammar:
            made = _log(made)
        elif model is ready.ReadyGrammar:
            choices = _choices(model)
            made = made | {"oneOf": [*choices, {**_has("timeout"), "not": {"anyOf": choices}}]}
        elif issubclass(model, grammar.Choice):
            made = made | {"oneOf": _choices(model)}
        return made if model not in _SHORT else {"anyOf": [*_SHORT[model], made]}


def _has(key: str) -> JsonSchemaValue:
    """Return the schema of mappings with a key; a null is as good as no key."""
    return {"required": [key], "properties": {key: {"not": {"type": "null"}}}}


def _choices(model: type[grammar.Choice]) -> list[JsonSchemaValue]:
    return [*map(_has, grammar.keys_of_choice(model).values())]


def _aggregate(made: JsonSchemaValue) -> JsonSchemaValue:
    kinds: dict[str, Any] = dict.fromkeys(process.AGGREGATE_KINDS, _NAME) | {"count": _NO_KEYS}
    sizes = {"minProperties": 1, "maxProperties": 1, "additionalProperties": False}
    return {"type": "object", "description": made.get("description", ""), "properties": kinds, **sizes}


def _log(made: JsonSchemaValue) -> JsonSchemaValue:
    """Return the schema of `log`: `kafka` and `pipeline` stand for some of its keys."""
    choice = {"oneOf": _choices(log.LogGrammar)}
    rules = [
        {"if": _has("pipeline"), "else": {"required": ["table", "slice"]}},
        {
            "if": _has("kafka"),
            "then": {"not": {"allOf": choice["oneOf"]}},
            "else": {"required": ["event_time"], **choice},
        },
    ]
    slice_ = {"if": _has("pipeline"), "else": {"properties": {"slice": {"required": ["by"]}}}}
    return {key: part for key, part in made.items() if key != "required"} | {"allOf": [*rules, slice_]}


def file_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a pipeline file."""
    made = Pipeline.model_json_schema(by_alias=True, mode="validation", schema_generator=_FileSchema)
    by = made["$defs"]["SliceGrammar"]
    by["required"] = [name for name in by.get("required", ()) if name != "by"]
    return {"$schema": DIALECT, **made, "title": "Hindcast pipeline file"}
