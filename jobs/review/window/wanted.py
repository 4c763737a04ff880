"""The window to explain: its key as typed values, and its bounds."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.durations import format_duration
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.models.windows import WindowsGrammar
from jobs.pipeline.slices import show_instant
from jobs.plain_text import shortened
from jobs.replay.stages.scan import feed_form
from windowlib.columnar.arrow import arrow_type
from windowlib.columnar.python_values import arrow_value, python_values
from windowlib.errors import RequestError
from windowlib.records.column_types import Node

if TYPE_CHECKING:
    from windowlib.columnar.watermark_steps import Bools, Int64s

ALL: Final = "all"
"""The text of the key of a pipeline with `log.over: all`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """The key of a window: key column -> its value as Arrow stores it. It is empty if one key has all records."""

    values: Mapping[str, "pa.Scalar[Any]"]

    @property
    def texts(self) -> dict[str, str]:
        return {name: str(value) for name, value in self.plain().items()}

    @property
    def words(self) -> str:
        """The key in a sentence, such as `origin JFK`."""
        return ", ".join(f"{name} {value}" for name, value in self.texts.items()) or "all records"

    def plain(self) -> dict[str, Any]:
        """Return column -> its value as a plain Python value."""
        return {name: python_values(pa.repeat(value, 1))[0] for name, value in self.values.items()}

    def rows(self, columns: Mapping[str, pa.Array], count: int) -> pa.Array:
        """Return which of `count` rows have this key. `columns` has the key columns."""
        has_key = pa.repeat(pa.scalar(True), count)  # noqa: FBT003 - Arrow's argument
        for name, value in self.values.items():
            own, wanted = feed_form(columns[name]), feed_form(pa.repeat(value, 1))[0]
            has_key = pc.and_(has_key, pc.fill_null(pc.equal(own, wanted), False))  # noqa: FBT003
        return has_key

    def rows_of(self, table: pa.Table) -> pa.Array:
        return self.rows({name: table[name].combine_chunks() for name in self.values}, table.num_rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedWindow:
    """A window of one key. Storm's windows have their end, and not their start, as an instant of theirs."""

    key: Key
    start_ms: int
    end_ms: int
    is_right_closed: bool = False

    @property
    def name(self) -> str:
        """The window in a sentence, such as `[2013-02-04 13:45:00 UTC, 2013-02-04 14:45:00 UTC) of origin JFK`."""
        return f"{bounds_text(self.start_ms, self.end_ms, is_right_closed=self.is_right_closed)} of {self.key.words}"

    def holds(self, at_ms: "Int64s") -> "Bools":
        if self.is_right_closed:
            return np.asarray((at_ms > self.start_ms) & (at_ms <= self.end_ms))
        return np.asarray((at_ms >= self.start_ms) & (at_ms < self.end_ms))

    def overlaps(self, start_ms: int | None, end_ms: int | None) -> bool:
        """Return whether bounds overlap the window; missing ones do not."""
        return start_ms is not None and end_ms is not None and start_ms < self.end_ms and self.start_ms < end_ms


def bounds_text(start_ms: int, end_ms: int, *, is_right_closed: bool = False) -> str:
    """Return the bounds of a window as an interval of instants."""
    opening, closing = "(]" if is_right_closed else "[)"
    return f"{opening}{show_instant(start_ms)}, {show_instant(end_ms)}{closing}"


def key_of_text(pipeline: Pipeline, text: str, columns: Mapping[str, Node]) -> Key:
    """Return the key that a text names.

    Of several key columns, `text` has the values in the order of `log.key` as a line of CSV. It is `all` for a pipeline
    with `log.over: all`. `columns` are the stored ones of `window_outputs`, which have the types of the key.
    Raises RequestError: the text has another number of values, or a value has not the type of its column.
    """
    names = pipeline.log.key_columns
    if not names and text != ALL:
        raise RequestError(
            f"pipeline {pipeline.name} has no key columns (log.over: all), and the key {shortened(text)!r} was given; "
            f"write {ALL}"
        )
    texts = next(csv.reader([text]), [""]) if len(names) > 1 else [text] * len(names)
    return key_of_texts(pipeline, texts, columns)


def key_of_texts(pipeline: Pipeline, texts: Sequence[str], columns: Mapping[str, Node]) -> Key:
    """Return the key with these values, in the order of the key columns; raises as `key_of_text` does."""
    names = pipeline.log.key_columns
    if len(texts) != len(names):
        raise RequestError(
            f"the key of pipeline {pipeline.name} has the columns {', '.join(names)}, and {len(texts)} values were "
            f"given: {shortened(', '.join(texts))!r}; write one value for each, separated by commas, such as "
            '`--window "JFK,HA" START`; a value with a comma is in double quotes'
        )
    return Key(values={name: _typed(name, text, columns[name]) for name, text in zip(names, texts, strict=True)})


def _typed(name: str, text: str, node: Node) -> "pa.Scalar[Any]":
    kind = arrow_type(node)
    try:
        return arrow_value(text, kind)
    except pa.ArrowException as error:
        raise RequestError(
            f"the key column {name} is of type {node}, and {shortened(text)!r} cannot be read as one; give a value as "
            f"`hindcast show` prints it"
        ) from error


def fixed_end(windows: WindowsGrammar, start_ms: int) -> int | None:
    """Return the end of the window that starts at an instant, if all windows of the pipeline have one size.

    Raises RequestError: no window starts there. The message has the nearest windows.
    """
    tumbling, sliding = windows.tumbling, windows.sliding
    if sliding is not None:
        size_ms, every_ms, shift_ms = sliding.size_ms, sliding.slide_ms, sliding.offset_ms
    elif tumbling is not None:
        size_ms, every_ms, shift_ms = tumbling.size_ms, tumbling.size_ms, tumbling.offset_ms
    else:
        return None
    is_shifted = tumbling is not None and tumbling.stagger.by != "aligned"
    beyond_ms = (start_ms - shift_ms) % every_ms
    if beyond_ms and not is_shifted:
        before_ms = start_ms - beyond_ms
        raise RequestError(
            f"no window starts at {show_instant(start_ms)}: windows of {format_duration(size_ms)} start every "
            f"{format_duration(every_ms)}; the nearest start at {show_instant(before_ms)} and "
            f"{show_instant(before_ms + every_ms)}"
        )
    return start_ms + size_ms
