"""The stages that change the fields of a document: $addFields, $project, $unset, $unwind, $replaceRoot, $redact."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from windowlib.atlas.documents.documents import MISSING, Document, Value, at_objects, is_nothing, with_field
from windowlib.atlas.documents.json_documents import is_typed
from windowlib.atlas.documents.places import Json, Place
from windowlib.atlas.expressions.expressions import compile_expression
from windowlib.atlas.expressions.forms import Expression, ExpressionFault, Scope, fault
from windowlib.atlas.stages.stage_forms import Stage, each

Path = tuple[str, ...]


def path_of(path: Json, place: Place) -> Path:
    """Return the path of a field, split at its dots. Raises SpecError: a part is empty or begins with `$`."""
    names = tuple(place.text(path).split("."))
    if not all(names) or any(name.startswith("$") for name in names):
        raise place.refused(path, "a field's path, such as field or field.inner")
    return names


def _flat(specification: Json, place: Place) -> Iterator[tuple[Path, Json, Place]]:
    """Yield (path, specification, place) for each leaf of a specification of fields, which may be nested."""
    for name, inner in place.mapping(specification).items():
        at, path = place.at(name), path_of(name, place.at(name))
        is_nested = isinstance(inner, Mapping) and inner and not is_typed(inner)
        if is_nested and not any(field.startswith("$") for field in inner):
            yield from ((path + rest, leaf, leaf_at) for rest, leaf, leaf_at in _flat(inner, at))
        else:
            yield path, inner, at


def add_fields(argument: Json, place: Place) -> Stage:
    """Return the stage of $addFields and $set. Each expression reads the document from before the stage."""
    if not place.mapping(argument):
        raise place.refused(argument, "at least one field")
    fields = [(path, compile_expression(inner, at)) for path, inner, at in _flat(argument, place)]
    return each("$addFields", lambda scope: (_with_fields(scope.root, fields, scope),))


def _with_fields(document: Document, fields: list[tuple[Path, Expression]], scope: Scope) -> Document:
    for path, expression in fields:
        document = with_field(document, path, expression(scope))
    return document


def unset(argument: Json, place: Place) -> Stage:
    """Return the stage of $unset."""
    names = argument if isinstance(argument, list | tuple) else [argument]
    paths = [path_of(name, place) for name in names]
    if not paths:
        raise place.refused(argument, "at least one field")
    return each("$unset", lambda scope: (_without(scope.root, paths),))


def _is_flag(value: Json) -> bool:
    return isinstance(value, bool | int | float)


def project(argument: Json, place: Place) -> Stage:
    """Return the stage of $project: either fields to keep (1) or to compute, or only fields to leave out (0)."""
    leaves = list(_flat(argument, place))
    if not leaves:
        raise place.refused(argument, "at least one field")
    others = [(path, inner, at) for path, inner, at in leaves if path != ("_id",)]
    excluded = [path for path, inner, _ in others if _is_flag(inner) and not inner]
    if excluded and len(excluded) < len(others):
        raise place.refused(argument, "either fields to leave out (0), or fields to keep or compute, and _id")
    keeps_id = all(not _is_flag(inner) or bool(inner) for path, inner, _ in leaves if path == ("_id",))
    if excluded or (not others and not keeps_id):
        gone = excluded if keeps_id else [*excluded, ("_id",)]
        return each("$project", lambda scope: (_without(scope.root, gone),))
    return _inclusion(leaves, keeps_id=keeps_id)


def _without(document: Document, paths: list[Path]) -> Document:
    for path in paths:
        document = with_field(document, path, MISSING)
    return document


def _inclusion(leaves: list[tuple[Path, Json, Place]], *, keeps_id: bool) -> Stage:
    taken = [path for path, inner, _ in leaves if _is_flag(inner) and inner]
    computed = [(path, compile_expression(inner, at)) for path, inner, at in leaves if not _is_flag(inner)]
    if keeps_id and all(path != ("_id",) for path, _ in computed):
        taken.append(("_id",))
    kept = _Kept.of(taken, [path for path, _ in computed])
    return each("$project", lambda scope: (_with_fields(kept.of_document(scope.root), computed, scope),))


@dataclass(slots=True)
class _Kept:
    """What $project keeps of a field: all of it, or the named fields of the objects and arrays in it."""

    fields: "dict[str, _Kept]"
    is_whole: bool = False
    is_filled: bool = False
    """Fields inside are computed, also in place of a value that is no object."""

    @classmethod
    def of(cls, taken: list[Path], computed: list[Path]) -> "_Kept":
        """Return what a document keeps of its own. Computed fields are not kept, but the objects around them are."""
        root = cls({})
        for path in taken:
            root._at(path).is_whole = True
        for path in computed:
            for depth in range(1, len(path)):
                root._at(path[:depth]).is_filled = True
        return root

    def _at(self, path: Path) -> "_Kept":
        inner = self
        for name in path:
            inner = inner.fields.setdefault(name, _Kept({}))
        return inner

    def of_document(self, document: Document) -> Document:
        fields, result = self.fields, {}
        for name, field in document.items():
            if name in fields and (kept := fields[name].of_value(field)) is not MISSING:
                result[name] = kept
        return result

    def of_value(self, value: Value) -> Value:
        """Return what is kept of a field's value, or MISSING."""
        if self.is_whole:
            return value
        if isinstance(value, dict):
            return self.of_document(value)
        if isinstance(value, list):
            return [kept for kept in map(self.of_value, value) if kept is not MISSING]
        return {} if self.is_filled else MISSING


def unwind(argument: Json, place: Place) -> Stage:
    """Return the stage of $unwind: one document per element. A value that is not an array counts as one element."""
    fields: Mapping[str, Json] = {"path": argument} if isinstance(argument, str) else argument
    fields = place.fields(fields, required=("path",), optional=("includeArrayIndex", "preserveNullAndEmptyArrays"))
    text = place.at("path").text(fields["path"])
    if not text.startswith("$") or text.startswith("$$"):
        raise place.at("path").refused(text, "a path such as $field")
    path = path_of(text[1:], place.at("path"))
    preserves = fields.get("preserveNullAndEmptyArrays", False) is True
    index = path_of(fields["includeArrayIndex"], place) if "includeArrayIndex" in fields else None

    def change(scope: Scope) -> Iterator[Document]:
        document = scope.root
        value = at_objects(document, path)
        if is_nothing(value) or value == []:
            if preserves:
                kept = with_field(document, path, MISSING) if value == [] else document
                yield with_field(kept, index, None) if index else kept
            return
        for at, element in enumerate(value if isinstance(value, list) else [value]):
            made = with_field(document, path, element)
            yield with_field(made, index, at if isinstance(value, list) else None) if index else made

    return each("$unwind", change)


def _replacing(name: str, expression: Expression) -> Stage:
    def change(scope: Scope) -> Iterator[Document]:
        document = expression(scope)
        if not isinstance(document, dict):
            raise fault(name, document, "an object as the new document")
        yield document

    return each(name, change)


def replace_root(argument: Json, place: Place) -> Stage:
    """Return the stage of $replaceRoot."""
    fields = place.fields(argument, required=("newRoot",))
    return _replacing("$replaceRoot", compile_expression(fields["newRoot"], place.at("newRoot")))


def replace_with(expression: Json, place: Place) -> Stage:
    """Return the stage of $replaceWith."""
    return _replacing("$replaceWith", compile_expression(expression, place))


_VERDICTS: Final[Mapping[str, Value]] = {"DESCEND": "descend", "PRUNE": "prune", "KEEP": "keep"}
"""The variables of $redact. Their values are plain texts, as in MongoDB."""


def redact(argument: Json, place: Place) -> Stage:
    """Return the stage of $redact: for each document and subdocument, keep it, prune it, or descend into it."""
    expression = compile_expression(argument, place.with_variables(*_VERDICTS))

    def judged(scope: Scope, document: Document) -> Value:
        verdict = expression(scope._replace(root=document, variables=_VERDICTS))
        match verdict:
            case "prune":
                return MISSING
            case "keep":
                return document
            case "descend":
                inner = (
                    (name, _descended(field, lambda part: judged(scope, part))) for name, field in document.items()
                )
                return {name: field for name, field in inner if field is not MISSING}
            case _:
                raise ExpressionFault("$redact needs $$DESCEND, $$PRUNE or $$KEEP")

    def change(scope: Scope) -> Iterator[Document]:
        document = judged(scope, scope.root)
        if document is not MISSING:
            yield document

    return each("$redact", change)


def _descended(value: Value, judged: Callable[[Document], Value]) -> Value:
    if isinstance(value, dict):
        return judged(value)
    if isinstance(value, list):
        return [kept for kept in (_descended(element, judged) for element in value) if kept is not MISSING]
    return value
