"""The explanation of a window as a value: its records, its panes, and its JSON."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jobs.plain_text import counted
from jobs.reading.plain_values import instant_at, plain
from jobs.review.window.operator_walk import WindowRecord
from jobs.review.window.wanted import WantedWindow


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowPane:
    """A row of `window_outputs`. `readers`: seen, replaced, withdraws, or not published.

    `is_stored` is false for a row that the operator gives and no table has. `is_computed` is false for a stored row
    that the operator does not give, and None if the slice was not run again.
    """

    slice_id: str
    run_id: str
    row: Mapping[str, Any]
    readers: str
    is_stored: bool
    is_computed: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowExplanation:
    """A window. `counts` maps a fate to its number of records; `left_out` of them are not in `records`.

    `outputs` are the columns of the result, `slices` those that were read, and `unread` those that may have records of
    the window and cannot be read any more. `differences` are sentences; there are none if all panes are those that were
    published.
    """

    window: WantedWindow
    records: tuple[WindowRecord, ...]
    left_out: int
    counts: Mapping[str, int]
    panes: tuple[WindowPane, ...]
    is_open: bool
    outputs: tuple[str, ...]
    slices: tuple[str, ...]
    unread: tuple[str, ...]
    differences: tuple[str, ...]

    @property
    def seen(self) -> tuple[WindowPane, ...]:
        """The panes that readers see with the default reading."""
        return tuple(pane for pane in self.panes if pane.readers == "seen")

    @property
    def sentence(self) -> str:
        """The answer in a few sentences."""
        fates = ", ".join(f"{number:,} {fate}" for fate, number in self.counts.items()) or "none"
        total = sum(self.counts.values())
        which = "the log" if not self.unread else "the slices that can be read"
        told = f"Window {self.window.name} has {counted(total, 'record')} of {which}: {fates}."
        if self.seen:
            values = "; ".join(
                ", ".join(f"{name} {plain(pane.row.get(name))}" for name in self.outputs) for pane in self.seen
            )
            told += f" Readers see {values}."
        else:
            told += " Readers see no pane of it."
        return told + (" It is still open after the last of these slices." if self.is_open else "")

    def to_json(self) -> dict[str, Any]:
        """Return the explanation as plain JSON data; times are ISO texts in UTC."""
        window = self.window
        return {
            "key": plain(window.key.plain()),
            "window_start": plain(instant_at(window.start_ms)),
            "window_end": plain(instant_at(window.end_ms)),
            "sentence": self.sentence,
            "counts": dict(self.counts),
            "records": [_record_json(record) for record in self.records],
            "left_out": self.left_out,
            "panes": [
                {
                    "readers": pane.readers,
                    "is_stored": pane.is_stored,
                    "is_computed": pane.is_computed,
                    "row": plain(pane.row),
                }
                for pane in self.panes
            ],
            "is_open": self.is_open,
            "slices": list(self.slices),
            "unread": list(self.unread),
            "differences": list(self.differences),
        }


def _record_json(record: WindowRecord) -> dict[str, Any]:
    return {
        "slice_id": record.slice_id,
        "rank": record.rank,
        "record_id": record.record_id,
        "event_time": plain(instant_at(record.event_time_ms)),
        "watermark": None if record.watermark_ms is None else plain(instant_at(record.watermark_ms)),
        "fate": record.fate,
        "reason": record.reason,
        "change": record.change,
        "values": plain(record.values),
    }
