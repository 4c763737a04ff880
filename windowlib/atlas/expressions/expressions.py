"""The expression language: compiles JSON to a function from a document to a value.

A text that begins with `$$` is a variable, and another text that begins with `$` is a path. An object whose only field
begins with `$` is an operator. Everything else is a literal. The author's errors are raised at compile time, with their
place in the stage.
"""

import re
from collections.abc import Mapping
from typing import Final

from windowlib.atlas.documents.documents import MISSING, Date, Value, field_path
from windowlib.atlas.documents.json_documents import is_typed, read_literal
from windowlib.atlas.documents.places import Json, Place
from windowlib.atlas.expressions import arithmetic, arrays, conversions, dates, logic, objects, strings
from windowlib.atlas.expressions.accumulators import EXPRESSIONS
from windowlib.atlas.expressions.forms import Call, Expression, NamedCall, Operators, Scope, Special
from windowlib.errors import SpecError

OPERATORS: Final[Operators] = {
    **arithmetic.OPERATORS,
    **logic.OPERATORS,
    **strings.OPERATORS,
    **arrays.OPERATORS,
    **objects.OPERATORS,
    **dates.OPERATORS,
    **conversions.OPERATORS,
    **EXPRESSIONS,
}
"""All operators of expressions, by name."""

REFUSED: Final[Mapping[str, str]] = {
    "$function": "it runs code that a replay cannot repeat",
    "$accumulator": "it runs code that a replay cannot repeat",
    "$rand": "two replays would differ",
    "$sampleRate": "two replays would differ",
    "$createUUID": "two replays would differ",
}
"""The operators of MongoDB that are not supported on purpose, with the reason."""


def compile_expression(expression: Json, place: Place) -> Expression:
    """Return the function that evaluates an expression.

    Raises SpecError: an operator or a variable is unknown, the number of arguments is wrong, or a literal's type is not
    supported.
    """
    if isinstance(expression, str) and expression.startswith("$"):
        return _variable(expression, place) if expression.startswith("$$") else _path(expression, place)
    if isinstance(expression, Mapping) and not is_typed(expression):
        fields = place.mapping(expression)
        operators = [name for name in fields if name.startswith("$")]
        if not operators:
            return _object(fields, place)
        if len(fields) > 1:
            raise place.refused(expression, "one operator alone, or fields whose names do not begin with $")
        return _operator(operators[0], fields[operators[0]], place)
    if isinstance(expression, list | tuple):
        return _array(expression, place)
    value = read_literal(expression, place)
    return lambda _scope: value


def _path(path: str, place: Place) -> Expression:
    names = tuple(path[1:].split("."))
    if not all(names) or any(name.startswith("$") for name in names):
        raise place.refused(path, "a path such as $field or $field.inner")
    if len(names) == 1:
        name = names[0]

        def evaluate(scope: Scope) -> Value:
            root = scope.root
            return root.get(name, MISSING) if isinstance(root, dict) else MISSING

        return evaluate
    return lambda scope: field_path(scope.root, names)


def _variable(variable: str, place: Place) -> Expression:
    name, *inner = variable[2:].split(".")
    if name not in place.variables or not all(inner):
        raise place.refused(
            variable, "one of the variables " + ", ".join(f"$${known}" for known in sorted(place.variables))
        )
    names = tuple(inner)
    match name:
        case "ROOT" | "CURRENT":
            return lambda scope: field_path(scope.root, names)
        case "NOW":
            return lambda scope: Date(scope.now_ms)
        case "REMOVE":
            return lambda _scope: MISSING
        case _:
            return lambda scope: field_path(scope.variables[name], names)


def _object(fields: Mapping[str, Json], place: Place) -> Expression:
    for name in fields:
        if not name or "." in name:
            raise place.at(name).refused(name, "a field's name without dots")
    inner = [(name, compile_expression(field, place.at(name))) for name, field in fields.items()]

    def evaluate(scope: Scope) -> Value:
        values = ((name, expression(scope)) for name, expression in inner)
        return {name: value for name, value in values if value is not MISSING}

    return evaluate


def _array(elements: list[Json] | tuple[Json, ...], place: Place) -> Expression:
    inner = [compile_expression(element, place.item(index)) for index, element in enumerate(elements)]

    def evaluate(scope: Scope) -> Value:
        values = [expression(scope) for expression in inner]
        return [None if value is MISSING else value for value in values]

    return evaluate


def _operator(name: str, operand: Json, place: Place) -> Expression:
    form = OPERATORS.get(name)
    if form is None:
        if name in REFUSED:
            raise SpecError(f"{place.at(name).path}: {name} is not supported: {REFUSED[name]}")
        raise SpecError(
            f"{place.at(name).path}: there is no expression operator {name}; docs/reference/atlas.md lists all of them"
            f"{_near(name)}. To use a text or object that begins with $ as a value, put it into $literal"
        )
    match form:
        case Special():
            return form.compile(operand, place.at(name), compile_expression)
        case NamedCall():
            return _named(form, operand, place.at(name))
        case Call():
            return _call(form, operand, place.at(name))


def _call(form: Call, operand: Json, place: Place) -> Expression:
    if isinstance(operand, list | tuple):
        arguments = [compile_expression(part, place.item(index)) for index, part in enumerate(operand)]
    else:
        arguments = [compile_expression(operand, place)]
    if len(arguments) < form.least or (form.most is not None and len(arguments) > form.most):
        raise place.refused(operand, _counted(form))
    function = form.function
    if len(arguments) == 1:
        only = arguments[0]
        return lambda scope: function(only(scope))
    if len(arguments) == 2:  # noqa: PLR2004 - the common case, made fast
        left, right = arguments
        return lambda scope: function(left(scope), right(scope))
    return lambda scope: function(*[argument(scope) for argument in arguments])


def _counted(form: Call) -> str:
    if form.most is None:
        return f"{form.least} or more arguments"
    return f"{form.least} arguments" if form.least == form.most else f"{form.least} to {form.most} arguments"


def _named(form: NamedCall, operand: Json, place: Place) -> Expression:
    fields = place.fields(operand, required=form.required, optional=form.optional)
    names = {name: re.sub("[A-Z]", lambda letter: "_" + letter[0].lower(), name) for name in fields}
    arguments = [(names[name], compile_expression(field, place.at(name))) for name, field in fields.items()]
    function = form.function
    return lambda scope: function(**{name: argument(scope) for name, argument in arguments})


def _near(name: str) -> str:
    same = [known for known in OPERATORS if known.lower() == name.lower()]
    return f", for example {same[0]}" if same else ""
