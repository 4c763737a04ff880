"""Comparison, boolean and conditional operators, variables and literals."""

from collections.abc import Callable
from functools import partial
from typing import Final

from windowlib.atlas.documents.documents import Value, at_objects, compare, is_nothing, is_true
from windowlib.atlas.documents.json_documents import read_literal
from windowlib.atlas.documents.places import Json, Place
from windowlib.atlas.expressions.forms import Call, Compile, Expression, ExpressionFault, Operators, Scope, Special


def _comparison(holds: Callable[[int], bool]) -> Call:
    return Call(lambda left, right: holds(compare(left, right)), 2, 2)


def _all_or_any(operand: Json, place: Place, compile_: Compile, *, stops_at: bool) -> Expression:
    parts = operand if isinstance(operand, list | tuple) else [operand]
    expressions = [compile_(part, place.item(index)) for index, part in enumerate(parts)]

    def evaluate(scope: Scope) -> Value:
        for expression in expressions:
            if is_true(expression(scope)) is stops_at:
                return stops_at
        return not stops_at

    return evaluate


def _cond(operand: Json, place: Place, compile_: Compile) -> Expression:
    names = ("if", "then", "else")
    if isinstance(operand, list | tuple):
        if len(operand) != len(names):
            raise place.refused(operand, "[if, then, else]")
        operand = dict(zip(names, operand, strict=True))
    fields = place.fields(operand, required=names)
    condition, then, otherwise = (compile_(fields[name], place.at(name)) for name in names)
    return lambda scope: then(scope) if is_true(condition(scope)) else otherwise(scope)


def _if_null(operand: Json, place: Place, compile_: Compile) -> Expression:
    parts = place.array(operand)
    if len(parts) < 2:  # noqa: PLR2004 - an expression and what replaces it
        raise place.refused(operand, "two or more expressions")
    expressions = [compile_(part, place.item(index)) for index, part in enumerate(parts)]

    def evaluate(scope: Scope) -> Value:
        for expression in expressions[:-1]:
            value = expression(scope)
            if not is_nothing(value):
                return value
        return expressions[-1](scope)

    return evaluate


def _switch(operand: Json, place: Place, compile_: Compile) -> Expression:
    fields = place.fields(operand, required=("branches",), optional=("default",))
    branches: list[tuple[Expression, Expression]] = []
    for index, branch in enumerate(place.at("branches").array(fields["branches"])):
        at = place.at("branches").item(index)
        parts = at.fields(branch, required=("case", "then"))
        branches.append((compile_(parts["case"], at.at("case")), compile_(parts["then"], at.at("then"))))
    default = compile_(fields["default"], place.at("default")) if "default" in fields else None

    def evaluate(scope: Scope) -> Value:
        for condition, then in branches:
            if is_true(condition(scope)):
                return then(scope)
        if default is None:
            raise ExpressionFault("$switch has no branch that holds, and no default")
        return default(scope)

    return evaluate


def variable_name(name_json: Json, place: Place) -> str:
    """Return the name of a variable: a small letter, then letters, digits and underscores.

    Raises SpecError: the text is not such a name.
    """
    name = place.text(name_json)
    if not (name.isidentifier() and name[0].islower()):
        raise place.refused(name_json, "a name that begins with a small letter")
    return name


def _let(operand: Json, place: Place, compile_: Compile) -> Expression:
    fields = place.fields(operand, required=("vars", "in"))
    at = place.at("vars")
    variables = {
        variable_name(name, at.at(name)): compile_(inner, at.at(name))
        for name, inner in at.mapping(fields["vars"]).items()
    }
    inside = compile_(fields["in"], place.with_variables(*variables).at("in"))

    def evaluate(scope: Scope) -> Value:
        return inside(scope.with_variables(**{name: expression(scope) for name, expression in variables.items()}))

    return evaluate


def _literal(operand: Json, place: Place, compile_: Compile) -> Expression:  # noqa: ARG001 - nothing inside is compiled
    value = read_literal(operand, place)
    return lambda _scope: value


def _meta(operand: Json, place: Place, compile_: Compile) -> Expression:  # noqa: ARG001 - nothing inside is compiled
    first, *names = place.text(operand).split(".")
    if first != "stream":
        raise place.refused(operand, "a path that begins with stream, such as stream.window.start")
    return lambda scope: at_objects(scope.meta, names)


OPERATORS: Final[Operators] = {
    "$cmp": Call(compare, 2, 2),
    "$eq": _comparison(lambda order: order == 0),
    "$ne": _comparison(lambda order: order != 0),
    "$gt": _comparison(lambda order: order > 0),
    "$gte": _comparison(lambda order: order >= 0),
    "$lt": _comparison(lambda order: order < 0),
    "$lte": _comparison(lambda order: order <= 0),
    "$and": Special(partial(_all_or_any, stops_at=False)),
    "$or": Special(partial(_all_or_any, stops_at=True)),
    "$not": Call(lambda value: not is_true(value)),
    "$cond": Special(_cond),
    "$ifNull": Special(_if_null),
    "$switch": Special(_switch),
    "$let": Special(_let),
    "$literal": Special(_literal),
    "$meta": Special(_meta),
}
