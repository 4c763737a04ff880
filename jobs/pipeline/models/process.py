"""The `aggregates` and `process` parts of a pipeline file: named aggregates, and a user's function."""

import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, SerializerFunctionWrapHandler, field_validator, model_serializer, model_validator

from jobs.pipeline.models.column_names import check_output_names
from jobs.pipeline.models.grammar import ColumnName, FunctionGrammar, GrammarModel
from jobs.pipeline.models.suggestions import did_you_mean
from windowlib.errors import SpecError
from windowlib.records.column_types import parse_type

AGGREGATE_KINDS: Final = ("count", "sum", "min", "max", "avg", "variance", "first", "last", "collect_list")


class AggregateGrammar(GrammarModel):
    """One aggregate. Every kind except `count` has a column."""

    kind: str
    column: ColumnName | None

    @model_validator(mode="before")
    @classmethod
    def _from_one_entry(cls, value: object) -> object:
        form = "write {kind: column}, such as {sum: amount}, or {count: {}}"
        if not isinstance(value, Mapping) or len(value) != 1:
            raise ValueError(f"{form}; found {value!r}")
        [(kind, column)] = value.items()
        if kind not in AGGREGATE_KINDS:
            raise ValueError(
                f"unknown aggregate {kind!r}; allowed: {', '.join(AGGREGATE_KINDS)}, and your own as process.function"
                f"{did_you_mean(str(kind), AGGREGATE_KINDS)}"
            )
        if kind == "count" and column == {}:
            return {"kind": kind, "column": None}
        if kind == "count":
            raise ValueError(f"count counts records and takes no column; write {{count: {{}}}}; found {column!r}")
        if not isinstance(column, str):
            raise ValueError(f"{kind} needs the name of a column: {form}; found {column!r}")  # noqa: TRY004  (pydantic takes ValueError)
        return {"kind": kind, "column": column}

    @model_serializer(mode="wrap")
    def _as_one_entry(self, _handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        return {self.kind: {} if self.column is None else self.column}


def _check_type(value: str) -> str:
    try:
        parse_type(value)
    except SpecError as error:
        raise ValueError(str(error)) from error
    return value


TypeName = Annotated[str, AfterValidator(_check_type)]
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,62}", re.ASCII)


class StateGrammar(GrammarModel):
    """One piece of state of the function: a value, a list or a map, and the type of its values."""

    kind: Literal["value", "list", "map"] = "value"
    type: TypeName


class ProcessGrammar(GrammarModel):
    """A user's function. It computes windows or, without windows, single records and timers.

    `output` has the columns of its results: mappings, or values in this order. `state` (per key) and `window_state`
    (per window) declare all state that it keeps.
    """

    function: FunctionGrammar
    output: Mapping[str, TypeName]
    state: Mapping[str, StateGrammar] = {}
    window_state: Mapping[str, StateGrammar] = {}
    side_outputs: Mapping[str, Mapping[str, TypeName]] = {}

    @field_validator("output")
    @classmethod
    def _check_output(cls, value: Mapping[str, str]) -> Mapping[str, str]:
        return check_output_names(value, "output column")

    @field_validator("state", "window_state", "side_outputs")
    @classmethod
    def _check_names(cls, value: Mapping[str, object]) -> Mapping[str, object]:
        for name in value:
            if not _NAME.fullmatch(name):
                raise ValueError(
                    f"{name!r} is not a valid name; allowed: lower-case letters, digits and _, a letter first, at most "
                    "63 characters"
                )
        return value

    @field_validator("side_outputs")
    @classmethod
    def _check_side_outputs(cls, value: Mapping[str, Mapping[str, str]]) -> Mapping[str, Mapping[str, str]]:
        for columns in value.values():
            check_output_names(columns, "side output column")
        return value

    @model_validator(mode="after")
    def _states_apart(self) -> "ProcessGrammar":
        both = sorted(set(self.state) & set(self.window_state))
        if both:
            raise ValueError(f"{', '.join(both)} is in state and in window_state; rename one of them")
        return self
