"""The columns of the log that a state was computed from, compared with those that the log has now.

Each run stores them in the ledger, because the rows of a state have no types for the values of records. A chunk writes
all whole records of a state again, so the columns of a run are those of all records in its state.
"""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Final

from jobs.lake.event_log import PinnedLog
from jobs.lake.lake import Lake
from jobs.lake.log_version import LogVersion
from jobs.lake.store import table_columns
from jobs.pipeline.log_schema import derivation, input_columns, read_columns
from jobs.pipeline.models.grammar import FunctionGrammar
from jobs.pipeline.models.pipeline import Pipeline
from jobs.reading.log_places import log_place
from jobs.runs import CheckpointRef, LogFields
from windowlib.errors import HindcastError, SpecError
from windowlib.records.column_types import (
    NODE_PARTS,
    Node,
    decimal_of,
    identified_fields,
    parse_type,
    spell_type,
    struct_fields,
    struct_type,
    without_variants,
)
from windowlib.records.row_ids import NO_ROWS
from windowlib.records.tables import USER_STATE, WINDOW_STATE

_INTEGERS: Final = frozenset({"byte", "short", "integer", "long"})


def state_columns(pipeline: Pipeline, log: LogVersion | PinnedLog) -> LogFields:
    """Return the columns of a log that a pipeline computes its state from."""
    names = _names(pipeline, log.columns)
    own = [{**field, "type": without_variants(field["type"])} for field in log.fields if field["name"] in names]
    return tuple(identified_fields(own))


def has_rows(digests: Mapping[str, str]) -> bool:
    """Return whether a state with these digests has open windows or state of functions."""
    return any(digests.get(name, NO_ROWS) != NO_ROWS for name in (WINDOW_STATE, USER_STATE))


@dataclass(frozen=True, slots=True, kw_only=True)
class StateGate:
    """Compares the columns of a state with those of a log.

    `fields` are the columns that the state now would be computed from. The other facts are those of the log.
    """

    pipeline: Pipeline
    lake: Lake
    fields: LogFields
    columns: Mapping[str, str]
    widened: Mapping[str, str]
    table_id: str

    @classmethod
    def of(cls, pipeline: Pipeline, lake: Lake, log: PinnedLog) -> "StateGate":
        columns = {name: spell_type(node) for name, node in log.nodes.items()}
        fields = state_columns(pipeline, log)
        return cls(
            pipeline=pipeline, lake=lake, fields=fields, columns=columns, widened=log.widened, table_id=log.table_id
        )

    def were_dates(self, before: CheckpointRef) -> frozenset[str]:
        """Return the columns, also derived ones, whose timestamps are days in the records of a state.

        Raises:
            SpecError: the state cannot go on: a column has another name, or a type that the state does not fit.
        """
        if not has_rows(before.digests) or before.state_columns == self.fields:
            return frozenset()
        is_same = before.log is not None and before.log.table_id == self.table_id
        stored = before.state_columns or (self._at(before.log.version) if before.log is not None and is_same else None)
        if stored is None:
            return self._unknown()
        former, now = ({"type": "struct", "fields": fields} for fields in (stored, self.fields))
        self._refuse_renamed(former, now, identity="id" if is_same else "name")
        return self._of_types(struct_fields(former), struct_fields(now))

    def _at(self, version: int) -> LogFields | None:
        """Return the columns of a state whose run stored none, as earlier versions did: those at the version it read.

        None if no column was widened, or if that version of the log is not there any more.
        """
        try:
            return (
                state_columns(self.pipeline, log_place(self.lake, self.pipeline).open(version))
                if self.widened
                else None
            )
        except HindcastError:
            return None

    def _unknown(self) -> frozenset[str]:
        """Refuse records of a column that was a date if nothing tells when they were read."""
        own = {field["name"] for field in self.fields}
        for name, kind in self.widened.items() if _keeps_records(self.pipeline) else ():
            if kind == "date" and name in own:
                raise self._refusal(
                    f"widened {name} from date, and the version that the state before was computed from is not there "
                    "any more, so the records of open windows may have days or instants"
                )
        return frozenset()

    def _refuse_renamed(self, former: Node, now: Node, *, identity: str) -> None:
        """Refuse a struct that has lost and got fields, or that has another field under the same name.

        `identity` is what tells a field. The ids of a copy of the table can be others.
        """
        inputs = self.pipeline.aggregates.values() if _keeps_records(self.pipeline) else ()
        by_place = {aggregate.column for aggregate in inputs}
        for path, before, after in _pairs(former, now, ""):
            if isinstance(before, str) or isinstance(after, str) or after["type"] != "struct":
                continue
            was, own = (
                {field["name"]: field.get(identity, field["name"]) for field in node["fields"]}
                for node in (before, after)
            )
            is_other = bool(was.keys() - own.keys() and own.keys() - was.keys())
            is_other |= any(was[name] != own[name] for name in was.keys() & own.keys())
            # The inputs of aggregates that keep whole records have the fields of a struct by place.
            if is_other or (path.split(".")[0] in by_place and [*own][: len(was)] != [*was]):
                raise self._refusal(
                    f"the columns {', '.join(own)}{f' in {path}' if path else ''} now, and the open windows have "
                    f"records or values with {', '.join(was)}. If a column was renamed, they would have "
                    "null or another value in it"
                )

    def _of_types(self, former: Mapping[str, Node], now: Mapping[str, Node]) -> frozenset[str]:
        from jobs.engine.window_spec import changed_states  # few logs need it

        both = {name: (_merged(former[name], node), node) for name, node in now.items() if name in former}
        changed = {name: pair for name, pair in both.items() if spell_type(pair[0]) != spell_type(pair[1])}
        if not changed:
            return frozenset()
        kinds = ", ".join(f"{name} from {spell_type(old)} to {spell_type(new)}" for name, (old, new) in changed.items())
        types = {name: spell_type(old) for name, (old, _) in changed.items()}
        before, after = (input_columns(self.pipeline, {**self.columns, **own}) for own in (types, {}))
        if names := changed_states(self.pipeline, after, before):
            raise self._refusal(
                f"widened {kinds}, and the open windows hold a state of aggregates.{names[0]} that cannot go on with "
                "the new type"
            )
        if reader := next(self._computed({name for name, pair in changed.items() if _has_other_form(*pair)}), None):
            raise self._refusal(f"widened {kinds}, and the state has values that {reader} made of the former type")
        return self._dates(before, after, kinds) if _keeps_records(self.pipeline) else frozenset()

    def _dates(self, before: Mapping[str, str], after: Mapping[str, str], kinds: str) -> frozenset[str]:
        dates = set()
        for name, kind in after.items():
            if before[name] == kind or "timestamp_ntz" not in kind:
                continue
            pairs = _pairs(parse_type(before[name]), parse_type(kind), name)
            formers = {old for _, old, new in pairs if new == "timestamp_ntz" and isinstance(old, str)}
            if len(formers) > 1:
                raise self._refusal(f"widened {kinds}, and only some of the instants of {name} were dates before")
            dates |= {name} if "date" in formers else set()
        return frozenset(dates)

    def _computed(self, changed: Set[str]) -> Iterator[str]:
        """Yield the texts and functions whose values in the state were made of columns with other types now."""
        own = derivation(self.pipeline, self.columns)
        for column in own.columns:
            leaves = [leaf for name, leaf in own.leaves.items() if f'"{name}"' in (column.sql or "")]
            if column.node == "string" and changed & {leaf.column for leaf in leaves}:
                yield f"log.columns.{column.name}"
        for function in self._with_state() if changed else ():
            if function.columns is None or changed & {*function.columns}:
                yield f"function {function.name}"

    def _with_state(self) -> Iterator[FunctionGrammar]:
        """Yield the users' functions that keep a state of their own. Only the table tells a user's aggregate."""
        pipeline, process = self.pipeline, self.pipeline.process
        triggers = pipeline.windows.trigger.whole() if pipeline.windows and pipeline.windows.trigger else ()
        yield from (trigger.function for trigger in triggers if trigger.function is not None)
        if process is not None:
            stored = table_columns(self.lake.table(pipeline.name, WINDOW_STATE))
            running = stored.get(f"acc_{next(iter(process.output))}", "")
            if process.state or process.window_state or "state" in struct_fields(running):
                yield process.function

    def _refusal(self, why: str) -> SpecError:
        return SpecError(
            f"the log has {why}. Give the output another name in {self.pipeline.source} and adopt this, so that the "
            "records of these windows are read again; or begin a new chain with --fresh"
        )


def _keeps_records(pipeline: Pipeline) -> bool:
    """Return whether the state can have values of whole records: those of documents and functions, and of evictors."""
    return not pipeline.aggregates or (pipeline.windows is not None and pipeline.windows.keeps_records)


def _names(pipeline: Pipeline, columns: Mapping[str, str]) -> Set[str]:
    """Return the names of the columns that a state is computed from, or more of them."""
    functions = pipeline.functions()
    is_documents = not pipeline.aggregates and pipeline.process is None
    if is_documents or any(function.columns is None for function in functions):
        return columns.keys()
    return read_columns(pipeline, columns)


def _pairs(before: Node, now: Node, path: str) -> Iterator[tuple[str, Node, Node]]:
    """Yield the parts of two types that have the same path, at any depth, and the types themselves."""
    yield path, before, now
    if isinstance(before, str) or isinstance(now, str) or before["type"] != now["type"]:
        return
    former, own = (struct_fields(node) if "fields" in node else {} for node in (before, now))
    for name in sorted(former.keys() & own.keys()):
        yield from _pairs(former[name], own[name], f"{path}.{name}" if path else name)
    for part in NODE_PARTS & now.keys():
        yield from _pairs(before[part], now[part], path)


def _merged(before: Node, now: Node) -> Node:
    """Return a former type with the fields that a struct has now."""
    if isinstance(before, str) or isinstance(now, str) or before["type"] != now["type"]:
        return before
    if now["type"] == "struct":
        former = struct_fields(before)
        return struct_type({name: _merged(former.get(name, node), node) for name, node in struct_fields(now).items()})
    return {**now, **{part: _merged(before[part], now[part]) for part in NODE_PARTS & now.keys()}}


def _has_other_form(before: Node, now: Node) -> bool:
    """Return whether functions and texts see values of a type in another form: all but integers and equal scales do."""
    leaves = ((old, new) for _, old, new in _pairs(before, now, "") if isinstance(old, str) or isinstance(new, str))
    return any(_form(old) != _form(new) for old, new in leaves)


def _form(node: Node) -> object:
    if not isinstance(node, str) or node in _INTEGERS:
        return isinstance(node, str)
    shape = decimal_of(node)
    return node if shape is None else shape[1:]
