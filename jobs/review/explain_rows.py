"""Tells the fate of a record of a side table in sentences, from its row there."""

from collections.abc import Mapping
from typing import Any, Literal

from jobs.durations import format_duration, human_duration
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import show_instant
from jobs.plain_text import counted, first_of
from jobs.reading.plain_values import shown_interval

MAX_WINDOWS = 4
Fate = Literal[
    "late", "late for some windows", "unassigned", "invalid", "assigned", "filtered", "duplicate", "not replayed",
    "not read", "unknown",
]  # fmt: skip


def late(pipeline: Pipeline, record_id: str, row: Mapping[str, Any]) -> tuple[Fate, str]:
    """Return the fate of a late record and its sentence, from its row."""
    windows = [shown_interval(each["window_start"], each["window_end"]) for each in row["missed_windows"] or ()]
    which = "its only window" if len(windows) == 1 else f"all its {counted(len(windows), 'window')}"
    if not row["missed_all"]:
        which = f"{len(windows)} of its windows"
    missed = f"for {which}: {first_of(windows, MAX_WINDOWS)}" if windows else "for any window"
    sentence = (
        f"Record {record_id} is late: it happened at {show_instant(row['event_time_ms'])}. When it arrived (slice "
        f"{row['slice_id']}, place {row['rank'] + 1:,}), {_met_watermark(row)} {missed}. {_tolerance(pipeline)} "
        "late_records stores it with all its columns."
    )
    return "late" if row["missed_all"] else "late for some windows", sentence


def _met_watermark(row: Mapping[str, Any]) -> str:
    """Return the watermark that a late record met and how late it was; "for" and the missed windows follow.

    The watermark is null before the first one: the profile storm takes records before 1970 as late from the start.
    """
    watermark_ms, late_by_ms = row["watermark_ms"], row["late_by_ms"]
    late = "late" if late_by_ms is None else f"{human_duration(late_by_ms)} too late"
    if watermark_ms is None:
        return f"there was no watermark yet. For the reason {row['reason']}, it was {late}"
    return f"the watermark was {show_instant(watermark_ms)}, so it was {late}"


def _tolerance(pipeline: Pipeline) -> str:
    """Return how late a record may be in this pipeline, with the keys of the pipeline file that define it."""
    watermark, windows = pipeline.watermark, pipeline.windows
    if pipeline.front_end is not None or watermark is None or windows is None:
        return f"The pipeline file defines under windows.{pipeline.front_end} how late a record may be."
    if watermark.out_of_orderness_ms is not None or watermark.kind == "ascending":
        bound = format_duration(watermark.out_of_orderness_ms or 0)
        first = f"Records may be {bound} out of order (watermark.out_of_orderness)"
    else:
        first = f"The watermark is of kind {watermark.kind} (watermark.kind)"
    lateness = format_duration(windows.allowed_lateness_ms)
    return f"{first}. Windows accept records for another {lateness} (windows.allowed_lateness)."


def unassigned(pipeline: Pipeline, record_id: str, row: Mapping[str, Any]) -> tuple[Fate, str]:
    """Return the fate of an unassigned record and its sentence, from its row."""
    sliding = None if pipeline.windows is None else pipeline.windows.sliding
    gaps = (
        f" (windows of {format_duration(sliding.size_ms)} every {format_duration(sliding.slide_ms)} leave gaps)"
        if sliding
        else ""
    )
    sentence = (
        f"Record {record_id} is unassigned: it happened at {show_instant(row['event_time_ms'])}, between two "
        f"windows{gaps}. It arrived in slice {row['slice_id']} (place {row['rank'] + 1:,}). unassigned_records stores "
        "it with all its columns."
    )
    return "unassigned", sentence


def invalid(_pipeline: Pipeline, record_id: str, row: Mapping[str, Any]) -> tuple[Fate, str]:
    """Return the fate of an invalid record and its sentence, from its row."""
    detail = f" ({row['detail']})" if row.get("detail") else ""
    sentence = (
        f"Record {record_id} is invalid: {row['reason']}{detail}. It arrived in slice {row['slice_id']} (place "
        f"{row['rank'] + 1:,}) and did not change the watermark. invalid_records stores it with all its columns."
    )
    return "invalid", sentence


def duplicate(pipeline: Pipeline, record_id: str, row: Mapping[str, Any]) -> tuple[Fate, str]:
    """Return the fate of a duplicate and its sentence, from its row."""
    distinct = pipeline.log.distinct
    rule = "" if distinct is None else f" with the same {', '.join(distinct.by)}"
    sentence = (
        f"Record {record_id} is a duplicate: it arrived in slice {row['slice_id']} (place {row['rank'] + 1:,}), and a "
        f"record{rule} arrived before it, in slice {row['earlier_slice_id']} (place {row['earlier_rank'] + 1:,} when "
        "it was read). The duplicate is in no window and did not change the watermark. duplicate_records stores it "
        "with all its columns."
    )
    return "duplicate", sentence
