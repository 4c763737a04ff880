"""$group: one document per value of `_id`, sorted by `_id` in the order of BSON."""

from typing import Any

from windowlib.atlas.documents.documents import MISSING, Document, Value, sort_key
from windowlib.atlas.documents.places import Json, Place
from windowlib.atlas.expressions.accumulators import Accumulator, Factory, compile_accumulator
from windowlib.atlas.expressions.expressions import compile_expression
from windowlib.atlas.expressions.forms import Expression, ExpressionFault
from windowlib.atlas.stages.stage_forms import Failure, Item, Run, Stage

_NAME = "$group"


def group(argument: Json, place: Place) -> Stage:
    """Return the stage of $group.

    If the `_id` or an argument fails for a document, the document is a failure and in no group. If an accumulator fails
    at the end, the document `{"_id": ...}` of its group is a failure.

    Raises:
        SpecError: there is no `_id`, or a field is not an accumulator.
    """
    fields = place.mapping(argument)
    if "_id" not in fields:
        raise place.refused(argument, "_id with an expression (null for one group), and fields with accumulators")
    identity = compile_expression(fields["_id"], place.at("_id"))
    computed: list[tuple[str, Factory, Expression]] = []
    for name, inner in fields.items():
        if name != "_id":
            at = place.at(name)
            if "." in name or name.startswith("$"):
                raise at.refused(name, "a field's name without dots that does not begin with $")
            computed.append((name, *compile_accumulator(inner, at, compile_expression)))

    def run_stage(items: list[Item], run: Run) -> list[Item]:
        groups: dict[Any, tuple[Value, list[Accumulator]]] = {}
        for item in items:
            scope = run.scope(item.document)
            try:
                group_id = identity(scope)
                values = [argument(scope) for _, _, argument in computed]
                _add(groups, None if group_id is MISSING else group_id, values, factories)
            except ExpressionFault as error:
                run.failures.append(Failure(item, _NAME, str(error)))
        return _results([groups[key] for key in sorted(groups)], names, run)

    names = [name for name, _, _ in computed]
    factories = [factory for _, factory, _ in computed]
    return run_stage


def _add(  # noqa: PLR0917 - a private helper of one caller
    groups: dict[Any, tuple[Value, list[Accumulator]]], identity: Value, values: list[Value], factories: list[Factory]
) -> None:
    """Add one document's values to its group."""
    key = sort_key(identity)
    group = groups.get(key)
    accumulators = [factory() for factory in factories] if group is None else group[1]
    for accumulator, value in zip(accumulators, values, strict=True):
        accumulator.check(value)
    for accumulator, value in zip(accumulators, values, strict=True):
        accumulator.add(value)
    if group is None:
        groups[key] = (identity, accumulators)


def _results(groups: list[tuple[Value, list[Accumulator]]], names: list[str], run: Run) -> list[Item]:
    results = []
    for identity, accumulators in groups:
        document: Document = {"_id": identity}
        try:
            for name, accumulator in zip(names, accumulators, strict=True):
                document[name] = accumulator.result()
        except ExpressionFault as error:
            run.failures.append(Failure(Item({"_id": identity}, None), _NAME, str(error)))
            continue
        results.append(Item(document, None))
    return results
