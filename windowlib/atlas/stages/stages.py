"""The inner pipeline of a window: its supported and refused stages, its compilation, and its run."""

from collections.abc import Callable, Iterator, Mapping
from operator import itemgetter
from typing import Final

from windowlib.atlas.documents.documents import MISSING, Document, SortKey, Value, sort_key
from windowlib.atlas.documents.orders import SortOrder
from windowlib.atlas.documents.places import Json, Place
from windowlib.atlas.expressions.accumulators import Accumulator, compile_accumulator
from windowlib.atlas.expressions.expressions import compile_expression
from windowlib.atlas.expressions.forms import ExpressionFault, Scope
from windowlib.atlas.stages import projections
from windowlib.atlas.stages.queries import compile_query
from windowlib.atlas.stages.stage_forms import Failure, Item, Run, Stage, each
from windowlib.errors import SpecError

Values = list[Value]


def group(argument: Json, place: Place) -> Stage:
    """Return the stage of $group.

    If the `_id` or an argument fails for a document, or an accumulator refuses its value, the document is a failure and
    in no group.
    Raises SpecError: there is no `_id`, or a field is not an accumulator.
    """
    fields = place.mapping(argument)
    if "_id" not in fields:
        raise place.refused(argument, "_id with an expression (null for one group), and fields with accumulators")
    identity = compile_expression(fields["_id"], place.at("_id"))
    accumulators = {name: _accumulator(name, inner, place) for name, inner in fields.items() if name != "_id"}
    checks = [(number, field.check) for number, field in enumerate(accumulators.values()) if field.check is not None]

    def run_stage(items: list[Item], run: Run) -> list[Item]:
        groups: dict[SortKey, tuple[Value, list[Values]]] = {}
        for item in items:
            scope = run.scope(item.document)
            try:
                group_id = identity(scope)
                values = [accumulator.argument(scope) for accumulator in accumulators.values()]
                _, rows = groups.get(key := sort_key(None if group_id is MISSING else group_id), (None, []))
                for number, check in checks:
                    check(values[number], (rows or [values])[0][number])
            except ExpressionFault as error:
                run.failures.append(Failure(item, "$group", str(error)))
                continue
            rows.append(values)
            groups.setdefault(key, (None if group_id is MISSING else group_id, rows))
        return [
            Item({"_id": group_id, **_summed(accumulators, rows)}, None)
            for _, (group_id, rows) in sorted(groups.items(), key=itemgetter(0))
        ]

    return run_stage


def _accumulator(name: str, accumulator: Json, place: Place) -> Accumulator:
    at = place.at(name)
    if "." in name or name.startswith("$"):
        raise at.refused(name, "a field's name without dots that does not begin with $")
    return compile_accumulator(accumulator, at, compile_expression)


def _summed(accumulators: Mapping[str, Accumulator], rows: list[Values]) -> Document:
    """Return the fields of a group from the values of its documents."""
    places = enumerate(accumulators.items())
    return {name: accumulator.summary([row[place] for row in rows]) for place, (name, accumulator) in places}


def _match(argument: Json, place: Place) -> Stage:
    query = compile_query(argument, place)
    return each("$match", lambda scope: (scope.root,) if query(scope) else ())


def _sort(argument: Json, place: Place) -> Stage:
    order = SortOrder.read(argument, place)
    return lambda items, _run: order.sorted(items, document_of=lambda item: item.document)


def _limit(argument: Json, place: Place) -> Stage:
    most = place.integer(argument, at_least=1)
    return lambda items, _run: items[:most]


def _count(argument: Json, place: Place) -> Stage:
    """Return the stage of $count: one document with the number of documents; none if there are no documents."""
    names = projections.path_of(argument, place)
    if len(names) > 1:
        raise place.refused(argument, "a field's name without dots")
    name = names[0]
    return lambda items, _run: [Item({name: len(items)}, None)] if items else []


def _validate(argument: Json, place: Place) -> Stage:
    """Return the stage of $validate with a query: a document that does not match is discarded, or fails."""
    fields = place.fields(argument, required=("validator",), optional=("validationAction",))
    at = place.at("validator")
    if "$jsonSchema" in at.mapping(fields["validator"]):
        raise SpecError(f"{at.path}: $jsonSchema is not supported; write the validator as a query")
    query = compile_query(fields["validator"], at)
    action = place.at("validationAction").one_of(fields.get("validationAction", "discard"), ("discard", "dlq"))

    def change(scope: Scope) -> Iterator[Value]:
        if query(scope):
            yield scope.root
        elif action == "dlq":
            raise ExpressionFault("Input document did not pass the validator of $validate.")

    return each("$validate", change)


STAGES: Final[Mapping[str, Callable[[Json, Place], Stage]]] = {
    "$match": _match,
    "$group": group,
    "$sort": _sort,
    "$limit": _limit,
    "$count": _count,
    "$project": projections.project,
    "$addFields": projections.add_fields,
    "$set": projections.add_fields,
    "$unset": projections.unset,
    "$unwind": projections.unwind,
    "$replaceRoot": projections.replace_root,
    "$replaceWith": projections.replace_with,
    "$redact": projections.redact,
    "$validate": _validate,
}
"""The stages that a window's pipeline may contain."""

_ASKS: Final = "it reads data outside the log, so a replay cannot repeat it; join before the log, or after the replay"
_WRITES: Final = "the tables of the pipeline are the only outputs; read window_outputs"
_NESTED: Final = "a pipeline has one window stage; use a second pipeline for the next window stage"
REFUSED: Final[Mapping[str, str]] = {
    "$lookup": _ASKS,
    "$cachedLookup": _ASKS,
    "$https": _ASKS,
    "$externalFunction": _ASKS,
    "$merge": _WRITES,
    "$emit": _WRITES,
    "$out": _WRITES,
    "$tumblingWindow": _NESTED,
    "$hoppingWindow": _NESTED,
    "$sessionWindow": _NESTED,
    "$setStreamMeta": "the metadata of a window is fixed: its bounds and its partition",
    "$source": "the log is the source; define it under log:",
}
"""The stages of MongoDB that are refused, with the reason."""


def compile_pipeline(pipeline: Json, place: Place) -> tuple[Stage, ...]:
    """Return the compiled stages of a pipeline.

    Raises SpecError: a stage is refused or unknown, or has a wrong argument.
    """
    stages = []
    for index, stage in enumerate(place.array(pipeline)):
        at = place.item(index)
        name, argument = at.single(stage, "the name of a stage")
        if name in REFUSED:
            raise SpecError(f"{at.at(name).path}: {name} is not allowed inside a window: {REFUSED[name]}")
        if name not in STAGES:
            raise SpecError(f"{at.at(name).path}: there is no stage {name}; allowed are {', '.join(STAGES)}")
        stages.append(STAGES[name](argument, at.at(name)))
    return tuple(stages)


def run_pipeline(stages: tuple[Stage, ...], documents: list[Document], run: Run) -> list[Document]:
    """Return the documents of the last stage, in their order, and add the failures to `run`."""
    items = [Item(document, origin) for origin, document in enumerate(documents)]
    for stage in stages:
        items = stage(items, run)
    return [item.document for item in items]
