"""Guesses what the columns of a table mean, by their names, types and first values. Pure; a person may name them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from jobs.pipeline.log_schema import INTEGERS, KEYS, ORDERED, TIMES
from jobs.pipeline.models.column_names import check_key_columns
from jobs.pipeline.models.grammar import Unit, refuse_control_characters
from jobs.pipeline.models.suggestions import did_you_mean
from windowlib.columnar.instants import can_read_instants, read_instants
from windowlib.errors import SpecError

_ARRIVAL: Final = ("ingest", "arriv", "receiv", "load", "landed", "insert", "process", "report", "written", "collector")
_EVENT: Final = ("event", "occur", "happen", "click", "depart", "start", "measured", "created", "observed")
_TIME: Final = re.compile(r"(^|_)(ts|time|timestamp|date|datetime|at|at_ms|ms|epoch)(_|$)|time|_at$")
_ID: Final = re.compile(r"(^|_)(id|uuid|guid|uid|hash)$|^id_|id$", re.IGNORECASE)
_SEQUENCE: Final = re.compile(
    r"(^|_)(offset|seq|sequence|seqno|sequence_number|lsn|position|log_position|serial|row_number)$", re.IGNORECASE
)
_KEY_WORDS: Final = (
    "user", "customer", "account", "device", "session", "client", "member", "visitor", "player", "sensor", "host",
    "origin", "carrier", "key", "tenant", "store", "shop", "station", "vehicle", "symbol", "topic",
)  # fmt: skip
_RANGES_MS: Final = (946_684_800_000, 4_102_444_800_000)
"""Instants of the years 2000 to 2099: an integer in this range may be a time."""
_PATH: Final = (
    "an option names a column of the table, and a pipeline file may also name a path into a struct "
    "(docs/reference/pipelines.md, Paths, derived columns and the filter)"
)
ALL: Final = ("all",)
"""The key of a person who wants one set of windows for all records."""
ORDERS: Final = (("commits",), ("appended",))
"""Values of `log.order` that are no columns."""
_PER_UNIT: Final = {"s": 1_000.0, "ms": 1.0, "us": 1e-3, "ns": 1e-6}


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRole:
    """A column of times, and the unit of its numbers (None: it needs none)."""

    column: str
    unit: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """The columns that a person has named. An empty tuple and None mean: guess.

    A word stands for columns: ALL in `key`, and one of ORDERS in `order`.
    """

    key: tuple[str, ...] = ()
    event_time: str | None = None
    arrival_time: str | None = None
    record_id: str | None = None
    slice_by: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    window_ms: int = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """What columns mean. `times` are all columns that may be times, `sequences` those that may number records."""

    key: tuple[str, ...]
    event_time: TimeRole | None
    arrival_time: TimeRole | None
    record_id: str | None
    times: tuple[TimeRole, ...]
    sequences: tuple[str, ...]
    partition: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """All named columns, each once."""
        times = [role.column for role in (self.event_time, self.arrival_time, *self.times) if role is not None]
        own = [self.record_id, self.partition]
        return tuple(dict.fromkeys([*self.key, *times, *self.sequences, *(name for name in own if name is not None)]))


def guess_roles(
    columns: Mapping[str, str],
    head: pa.Table,
    wishes: Wishes,
    *,
    without: Sequence[str] = (),
    entities: Sequence[str] = (),
) -> Roles:
    """Return the roles of columns.

    `columns` maps a name to a Spark simple type, in table order. `head` has some records with the columns that can be
    read, and `wishes` what a person has named. The partition columns `without` are guessed to be no key, and
    `entities`, the ids of what the records are about, to be no ids of records.
    Raises SpecError: a named column does not exist, has no plain values, or has values that are no times.
    """
    is_over_all = wishes.key == ALL and ALL[0] not in columns
    key = () if is_over_all else wishes.key
    for name in (*key, *(wishes.order if wishes.order not in ORDERS else ()), *filter(None, (wishes.record_id,))):
        _check_named(name, columns, head)
    usable = {name: kind for name, kind in columns.items() if is_usable(name)}
    times = _times(usable, head, without)
    arrival = _named_time(wishes.arrival_time, columns, head) or _arrival(times, usable)
    event_time = _named_time(wishes.event_time, columns, head) or _event_time(times, arrival)
    if wishes.arrival_time is None and event_time == arrival:
        arrival = None
    sequences = tuple(
        name for name, kind in usable.items() if name not in without and kind in INTEGERS and _SEQUENCE.search(name)
    )
    is_time = {role.column for role in (*times, event_time, arrival) if role is not None}
    taken = {*without, *sequences, *is_time}
    record_id = wishes.record_id or _record_id({n: k for n, k in usable.items() if n not in {*taken, *entities}}, head)
    rest = {name: kind for name, kind in usable.items() if name not in taken and name != record_id}
    partition = next((name for name in rest if name.lower() in {"partition", "kafka_partition", "shard"}), None)
    return Roles(
        key=() if is_over_all else key or _key({n: k for n, k in rest.items() if n != partition}, head),
        event_time=event_time,
        arrival_time=arrival,
        record_id=record_id,
        times=times,
        sequences=sequences,
        partition=partition,
    )


def orderable(columns: Mapping[str, str], name: str) -> bool:
    """Return whether `log.order` may name a column."""
    return columns.get(name, "").partition("(")[0] in ORDERED


def is_usable(name: str) -> bool:
    """Return whether a pipeline file can name a column."""
    try:
        refuse_control_characters(name)
    except ValueError:
        return False
    return 0 < len(name) <= 255  # noqa: PLR2004 - `ColumnName`


def _check_named(name: str, columns: Mapping[str, str], head: pa.Table) -> None:
    if name not in columns:
        there = ", ".join(f"{column} {kind}" for column, kind in columns.items())
        is_path = columns.get(name.partition(".")[0], "").startswith("struct")
        hint = f"; {_PATH}" if is_path else did_you_mean(name, columns)
        raise SpecError(f"the table has no column {name!r}; it has {there}{hint}")
    if name not in head.column_names:
        raise SpecError(f"column {name!r} is {columns[name]}; a key, a time, an id and an order have plain values")


def _named_time(text: str | None, columns: Mapping[str, str], head: pa.Table) -> TimeRole | None:
    """Return the time that a person has named: `column`, or `column:unit`."""
    if text is None:
        return None
    name, _, unit = text.rpartition(":")
    if text in columns or unit not in {known_unit.value for known_unit in Unit}:
        name, unit = text, ""
    _check_named(name, columns, head)
    role = _time_of(name, columns[name], head)
    if unit or role is None:
        kind = columns[name].partition("(")[0]
        if not unit and kind not in TIMES:
            raise SpecError(
                f"column {name!r} is {columns[name]}, and its values do not tell their unit; write {name}:ms "
                f"(allowed: {', '.join(known_unit.value for known_unit in Unit)})"
            )
        return TimeRole(column=name, unit=unit or None)
    return role


def _times(columns: Mapping[str, str], head: pa.Table, without: Sequence[str]) -> tuple[TimeRole, ...]:
    roles = [(name, role) for name, kind in columns.items() if (role := _time_of(name, kind, head)) is not None]
    own = [role for name, role in roles if name not in without and columns[name] != "date"]
    return tuple(own or [role for _, role in roles])


def _time_of(name: str, kind: str, head: pa.Table) -> TimeRole | None:
    """Return a column as a time, if its type or its values say that it is one."""
    if kind in {"timestamp", "timestamp_ntz", "date"}:
        return TimeRole(column=name)
    if name not in head.column_names:
        return None
    values = head[name].combine_chunks().drop_null()
    if not len(values) or not can_read_instants(values.type):
        return None
    if kind.partition("(")[0] in {"int", "bigint", "double", "decimal"}:
        return _numeric(name, values)
    if kind == "string" and _TIME.search(name.lower()) and not (read_instants(values, None).problems != 0).any():
        return TimeRole(column=name)
    return None


def _numeric(name: str, values: pa.Array) -> TimeRole | None:
    if pa.types.is_floating(values.type):
        values = values.filter(pc.is_finite(values))
    if not len(values):
        return None
    low, high = (float(bound.as_py()) for bound in (pc.min(values), pc.max(values)))
    for unit, per_ms in _PER_UNIT.items():
        if _RANGES_MS[0] <= low * per_ms and high * per_ms <= _RANGES_MS[1]:
            return TimeRole(column=name, unit=unit) if unit != "s" or _TIME.search(name.lower()) else None
    return None


def _score(name: str, words: Sequence[str]) -> int:
    return sum(word in name.lower() for word in words)


def _arrival(times: Sequence[TimeRole], columns: Mapping[str, str]) -> TimeRole | None:
    instants = [role for role in times if columns[role.column] != "date"]  # a day is no clock
    best = max(instants, key=lambda role: _score(role.column, _ARRIVAL), default=None)
    if best is not None and _score(best.column, _ARRIVAL):
        return best
    is_kafka = {"partition", "offset"}.issubset(columns)  # whose `timestamp` is that of the broker or the producer
    return next((role for role in times if is_kafka and role.column == "timestamp"), None)


def _event_time(times: Sequence[TimeRole], arrival: TimeRole | None) -> TimeRole | None:
    own = [role for role in times if role != arrival and not _score(role.column, _ARRIVAL)]
    return max(
        own, key=lambda role: (_score(role.column, _EVENT), bool(_TIME.search(role.column.lower()))), default=arrival
    )


def _record_id(columns: Mapping[str, str], head: pa.Table) -> str | None:
    def is_unique(name: str) -> bool:
        if name not in head.column_names or head.num_rows == 0:
            return False
        values = head[name]
        return bool(values.null_count == 0 and pc.count_distinct(values).as_py() > 0.98 * len(values))

    own = [name for name, kind in columns.items() if kind in (*INTEGERS, "string") and _ID.search(name)]
    return next((name for name in own if is_unique(name)), None)


def _can_be_key(name: str) -> bool:
    try:
        return bool(check_key_columns((name,)))
    except ValueError:
        return False


def _key(columns: Mapping[str, str], head: pa.Table) -> tuple[str, ...]:
    """Return the best key column; none if no name or value points to one."""

    def score(name: str) -> float:
        ratio = 1.0
        if name in head.column_names and head.num_rows:
            ratio = pc.count_distinct(head[name]).as_py() / head.num_rows
        is_text = columns[name] == "string"
        named = 2.0 * bool(_score(name, _KEY_WORDS)) + bool(_ID.search(name))
        return named + (0.5 if is_text and ratio < 0.5 else 0.0)  # noqa: PLR2004

    kinds = {*KEYS} - {"date", "timestamp", "boolean"}
    own = [name for name, kind in columns.items() if kind in kinds and _can_be_key(name)]
    best = max(own, key=score, default=None)
    return (best,) if best is not None and score(best) > 0 else ()
