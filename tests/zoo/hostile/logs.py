"""Draws a log and its pipeline from a seed: records, columns, order, windows, aggregates and the form of the table."""

import json
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import pyarrow as pa

from tests.zoo.entries import DAY_MS, FIRST_DAY, FIRST_MS
from tests.zoo.hostile.values import KINDS, Broken, names, rounded, value
from tests.zoo.types import Kind, time_value

Row = dict[str, Any]
DAYS: Final = 3
HOUR_MS: Final = 3_600_000
MOST_RECORDS: Final = 60
NUMBERS: Final = ("byte", "short", "integer", "long", "float", "double", "decimal")
_ORDERED: Final = tuple(kind for kind in KINDS if kind.orders)
_TIMES: Final = tuple(kind for kind in KINDS if kind.time is not None and "decimal(38" not in kind.name)
FORMS: Final = (
    "plain", "tiny files", "compacted", "z-ordered", "restored", "deleted", "mapped by name", "mapped by id", "tracked",
    "checkpoint", "v2 checkpoint", "not partitioned", "clustered", "added column", "widened column",
    "deletion vector", "empty files", "more partitions", "Parquet",
)  # fmt: skip
"""What happens to the table while or after the records are written."""
IN_SPARK: Final = ("void column", "interval column")
"""Only Spark reads tables in these forms."""
BY_DELTA_RS: Final = ("compacted", "z-ordered", "restored", "deleted", "checkpoint")
"""These forms need a writer of Delta."""
PARTITIONS: Final = (
    "boolean", "byte", "short", "integer", "long", "float", "double", "date", "timestamp", "timestamp_ntz", "string",
)  # fmt: skip
"""Types of partition columns, besides decimals."""
DISTINCT: Final = ("boolean", "byte", "short", "integer", "long", "date", "timestamp", "string", "binary")
"""Types whose values tell duplicates."""
KEEPS: Final = 4
"""A filter drops about one of so many records."""
LONG: Final = ("string", "binary")
"""Types with values that are too long for hundreds of windows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of the log: its role in the pipeline, its name and its type."""

    role: str
    name: str
    kind: Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """The windows of a pipeline: tumbling if `slide_ms` is `size_ms`, sessions with the gap `size_ms` if it is 0."""

    size_ms: int
    slide_ms: int
    offset_ms: int
    lateness_ms: int

    @property
    def yaml(self) -> str:
        """The inside of `windows`."""
        if not self.slide_ms:
            own = f"session: {{gap: {self.size_ms}ms}}"
        elif self.slide_ms == self.size_ms:
            own = f"tumbling: {{size: {self.size_ms}ms, offset: {self.offset_ms}ms}}"
        else:
            own = f"sliding: {{size: {self.size_ms}ms, slide: {self.slide_ms}ms, offset: {self.offset_ms}ms}}"
        return f"{{{own}, allowed_lateness: {self.lateness_ms}ms}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """An output: its name, what it computes, and the column of a number of the log; None for a count."""

    name: str
    kind: str
    column: Column | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostileLog:
    """A log: its columns, its records by commit, and the pipeline that replays it.

    The record values are those of Arrow's `from_pylist`, by the name of the column; `Broken` bytes are texts that are
    not UTF-8. `order` has the columns of the order; without any, the records are ordered as they were appended.
    `distinct` is the column whose values tell duplicates within a day.
    """

    seed: int
    columns: tuple[Column, ...]
    commits: tuple[tuple[Row, ...], ...]
    form: str
    writer: str
    order: tuple[str, ...]
    windows: Windows
    bound_ms: int
    keys: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]
    is_filtered: bool = False
    distinct: str | None = None

    def keeps(self, row: Row) -> bool:
        """Return whether the filter of the pipeline keeps a record."""
        return not self.is_filtered or math.fmod(row[self.of("seq").name], KEEPS) != 1

    def of(self, role: str) -> Column:
        """Return the first column of a role."""
        return next(column for column in self.columns if column.role == role)

    @property
    def partitions(self) -> tuple[Column, ...]:
        """The columns that are not in the files, because the commits or the paths have their values."""
        if self.form in {"not partitioned", "clustered"} or (self.form == "Parquet" and self.seed % 2):
            return ()
        day = self.of("day")
        if self.form != "more partitions":
            return (day,)
        others = [one for one in self.columns[::-1] if one.role in {"key", "time", "payload"} and self._is_text(one)]
        return (day, *others[: 1 + self.seed % 2])

    def _is_text(self, column: Column) -> bool:
        """Return whether a commit can have the values of a column. An empty text would be a null."""
        values = [row[column.name] for rows in self.commits for row in rows]
        is_kind = column.kind.name in PARTITIONS or column.kind.name.startswith("decimal")
        return is_kind and not any(value == "" or isinstance(value, Broken) for value in values)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table."""
        return pa.schema([(column.name, column.kind.arrow) for column in self.columns])

    @property
    def yaml(self) -> str:
        """The pipeline file."""
        time = self.of("time")
        unit = f", unit: {time.kind.unit}" if time.kind.unit else ""
        order = _listed(self.order) if self.order else "commits" if self.form == "tracked" else "appended"
        outputs = ", ".join(
            f"{quoted(one.name)}: {{{one.kind}: {'{}' if one.column is None else quoted(one.column.name)}}}"
            for one in self.aggregates
        )
        return (
            f"pipeline: zoo\nlog:\n  table: log\n{self._log_lines()}"
            f"  {f'key: {_listed(self.keys)}' if self.keys else 'over: all'}\n"
            f"  event_time: {{column: {quoted(time.name)}{unit}}}\n"
            f"  slice: {{by: {_listed([self.of('day').name])}}}\n  order: {order}\n"
            f"watermark: {{kind: bounded, out_of_orderness: {self.bound_ms}ms}}\n"
            f"windows: {self.windows.yaml}\n"
            f"aggregates: {{{outputs}}}\n"
        )

    def _log_lines(self) -> str:
        """Return the lines of `log` that few logs have."""
        lines = []
        if self.form == "Parquet":
            lines += ["format: parquet", *(f"partitions: {{{quoted(one.name)}: date}}" for one in self.partitions)]
        if self.is_filtered:
            name = self.of("seq").name.replace('"', '""')
            condition = f'"{name}" % {KEEPS} <> 1'
            lines.append(f"where: {quoted(condition)}")
        if self.distinct is not None:
            lines.append(f"distinct: {{by: {_listed([self.distinct])}, within: 1d}}")
        return "".join(f"  {line}\n" for line in lines)


def quoted(name: str) -> str:
    """Return a text as YAML."""
    text = json.dumps(name, ensure_ascii=False)
    return "".join(c if c.isprintable() or ord(c) > 0xFFFF else f"\\u{ord(c):04x}" for c in text)


def _listed(columns: Sequence[str]) -> str:
    return f"[{', '.join(map(quoted, columns))}]"


def draw(seed: int, *, form: str | None = None) -> HostileLog:
    """Return the log of a seed, in a random form or in the given one."""
    chance = random.Random(seed)
    drawn = chance.choice(FORMS) if chance.random() < 0.7 else "plain"
    form = form or drawn
    columns = _columns(chance, form)
    if form in BY_DELTA_RS and not _fits_delta_rs(columns):
        form = "plain"
    keys = [column.name for column in columns if column.role == "key"]
    rows = list(_records(chance, columns, can_break=form not in BY_DELTA_RS and chance.random() < 0.2))
    order, commits = _arranged(chance, columns, rows, form)
    return HostileLog(
        seed=seed,
        columns=columns,
        commits=commits,
        form=form,
        writer=_writer(chance, form, columns, rows),
        order=order,
        windows=_windows(chance, columns),
        bound_ms=chance.choice((0, HOUR_MS, HOUR_MS, 30 * HOUR_MS)),
        keys=tuple(keys if chance.random() < 0.9 else ()),
        aggregates=tuple(_aggregates(chance, columns)),
        is_filtered=chance.random() < 0.25,
        distinct=chance.choice([None, None, None, *(one.name for one in columns if _tells_duplicates(one))]),
    )


def _tells_duplicates(column: Column) -> bool:
    return column.role in {"key", "payload"} and column.kind.name in DISTINCT


def _windows(chance: random.Random, columns: Sequence[Column]) -> Windows:
    size_ms = chance.choice((HOUR_MS, 3 * HOUR_MS, 30 * HOUR_MS, 1, 7 * DAY_MS))
    slides_ms = [0, 0, size_ms, size_ms, size_ms // 2, size_ms * 2 // 3, size_ms * 2]
    if not any(column.kind.name in LONG for column in columns):
        slides_ms += [size_ms // 120, size_ms // 300]  # so many windows of a record
    slide_ms = chance.choice(slides_ms)
    offset_ms = chance.randrange(1 - slide_ms, slide_ms) if slide_ms and chance.random() < 0.4 else 0
    return Windows(
        size_ms=size_ms, slide_ms=slide_ms, offset_ms=offset_ms, lateness_ms=chance.choice((0, HOUR_MS // 2, DAY_MS))
    )


def _fits_delta_rs(columns: Sequence[Column]) -> bool:
    """Return whether deltalake writes the names: none differ in case only, and paths have no control characters.

    deltalake takes a path such as `a:b=2026-03-02/…` for one of another table when it rewrites files.
    """
    folded = {column.name.lower() for column in columns}
    return len(folded) == len(columns) and min(map(ord, "".join(folded))) >= ord(" ") and ":" not in "".join(folded)


def _writer(chance: random.Random, form: str, columns: Sequence[Column], rows: Sequence[Row]) -> str:
    """Choose the writer. deltalake writes no texts that are not UTF-8."""
    if not _fits_delta_rs(columns):
        return "by hand"
    if any(isinstance(one, Broken) for row in rows for one in row.values()):
        return "by hand"
    return "deltalake" if form in BY_DELTA_RS or (form == "plain" and chance.random() < 0.3) else "by hand"


def _columns(chance: random.Random, form: str) -> tuple[Column, ...]:
    roles = ["key"] * chance.choice((1, 1, 1, 2)) + ["time", *["payload"] * chance.randrange(1, 6), "day", "seq"]
    drawn = names(chance, len(roles))
    whole = next(kind for kind in KINDS if kind.name == "long")
    dates = next(kind for kind in KINDS if kind.name == "date")
    columns: list[Column] = []
    for role, name in zip(roles, drawn, strict=True):
        usable = [kind for kind in KINDS if kind.is_key] if chance.random() < 0.95 else KINDS
        kind = {
            "key": chance.choice(usable), "time": chance.choice(_TIMES), "payload": chance.choice(KINDS), "day": dates,
            "seq": whole,
        }[role]  # fmt: skip
        if role == "payload" and form == "widened column" and not any(one.role == "payload" for one in columns):
            kind = whole
        columns.append(Column(role=role, name=name, kind=kind))
    return tuple(columns)


def _records(chance: random.Random, columns: Sequence[Column], *, can_break: bool) -> Iterator[Row]:
    """Yield the records in the order of their numbers, day by day. `can_break` allows texts that are not UTF-8."""
    most = chance.choice((3, 20, MOST_RECORDS))
    pools = {one.name: [value(chance, one.kind) for _ in range(4)] for one in columns if one.role == "key"}
    is_skewed, has_limits = chance.random() < 0.3, chance.random() < 0.4
    first_ms = chance.choice((FIRST_MS, FIRST_MS, FIRST_MS, 0, -FIRST_MS))
    number = 0
    for day in range(DAYS):
        for _ in range(chance.choice((0, 1, most, most))):
            behind = chance.randrange(60 * HOUR_MS) if chance.random() < 0.2 else 0
            at_ms = first_ms + day * DAY_MS + chance.randrange(DAY_MS) - behind
            row: Row = {}
            for column in columns:
                match column.role:
                    case "key":
                        pool = pools[column.name]
                        row[column.name] = pool[0] if is_skewed and chance.random() < 0.9 else chance.choice(pool)
                    case "time":
                        row[column.name] = _time(chance, column.kind, at_ms, has_limits=has_limits)
                    case "day":
                        row[column.name] = FIRST_DAY + timedelta(days=day)
                    case "seq":
                        row[column.name] = number - 5
                    case _:
                        row[column.name] = value(chance, column.kind, can_break=can_break)
            number += 1
            yield row


def _time(chance: random.Random, kind: Kind, at_ms: int, *, has_limits: bool) -> object:
    if chance.random() < 0.04:
        return None
    if has_limits and chance.random() < 0.06:
        return rounded(chance.choice(kind.values), kind)
    return rounded(time_value(kind, at_ms), kind)


def _arranged(
    chance: random.Random, columns: Sequence[Column], rows: Sequence[Row], form: str
) -> tuple[tuple[str, ...], tuple[tuple[Row, ...], ...]]:
    """Return the columns of the order, and the records by commit."""
    seq = columns[-1].name
    size = 1 if form == "tiny files" else chance.choice((5, 40, 200))
    appended = (
        form not in {"compacted", "z-ordered", "restored", "more partitions", "Parquet"} and chance.random() < 0.3
    )
    if form == "tracked" or appended:
        return (), tuple(tuple(rows[first : first + size]) for first in range(0, len(rows), size))
    sortable = [one.name for one in columns if one.role == "payload" and one.kind.orders]
    order = (*(chance.sample(sortable, 1) if sortable and chance.random() < 0.3 else ()), seq)
    shuffled = chance.sample(rows, len(rows))
    return order, tuple(tuple(shuffled[first : first + size]) for first in range(0, len(rows), size))


def _aggregates(chance: random.Random, columns: Sequence[Column]) -> Iterator[Aggregate]:
    yield Aggregate(name="n", kind="count", column=None)
    odd = chance.choice(("window_start", "kind", "Mode", "n", "x", "acc_x", "record", "rank", "select", "X"))
    for number, column in enumerate(one for one in columns if one.role in {"payload", "key", "time"}):
        kinds = ["first", "last", "collect_list"]
        if column.kind.orders:
            kinds += ["min", "max"]
        if column.kind.name.startswith(NUMBERS):
            kinds += ["sum", "variance"]
            # The mean of a wider decimal has fewer digits than those of the rule.
            kinds += [] if "(38" in column.kind.name else ["avg"]
        name = odd if number == 0 and chance.random() < 0.1 else f"out_{number}"
        if name != "n":
            yield Aggregate(name=name, kind=chance.choice(kinds), column=column)
