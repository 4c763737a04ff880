"""Measures the sampled records: order, ties, delays, duplicates, keys and clocks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from jobs.doctor.column_roles import Roles, TimeRole
from jobs.doctor.delays import CommitDelays, Delays, measure_commit_delays, measure_delays
from jobs.doctor.sample import Sample
from jobs.durations import UNIT_MS
from jobs.lake.arrow_sql import plain_rows, query
from windowlib.columnar import instants
from windowlib.columnar.instants import Codes
from windowlib.columnar.watermark_steps import Int64s

_COUNTS: Final = "SELECT n FROM (SELECT count(*) AS n, COLUMNS(*) FROM t GROUP BY ALL)"
_DUPLICATES: Final = (
    "SELECT coalesce(sum(n - 1), 0), coalesce(sum(times - 1), 0), coalesce(max(apart), 0) FROM ("
    "SELECT count(*) AS n, count(DISTINCT e) AS times, max(s) - min(s) AS apart FROM t WHERE o0 IS NOT NULL GROUP BY o0"
    ")"
)
_SORTED: Final = "SELECT i FROM (SELECT * FROM t ORDER BY ALL NULLS FIRST)"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyMeasures:
    """The keys of the sample: how many, and the share of the records that the most frequent one has."""

    keys: int
    greatest_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalMeasures:
    """Arrival against event time, over the records that have both.

    `before` is the share that arrived before it happened, `before_worst_ms` by how much at most. `median_ms`
    and `p99_ms` are quantiles of the delay.
    """

    records: int
    before: float
    before_worst_ms: int
    median_ms: int
    p99_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicateMeasures:
    """How many records repeat the id of another one, and how far apart the slices of records with one id begin.

    `other_times` of the repetitions have an event time of their own, so they are no copies of a record.
    """

    records: int
    other_times: int
    apart_ms: int

    @property
    def within_days(self) -> int:
        """A bound of `log.distinct` that covers the repetitions of the sample, in days."""
        return -(-self.apart_ms // UNIT_MS["d"]) + 1

    @property
    def is_of_entities(self) -> bool:
        """Whether the id is that of what the records are about, such as a sensor: most repetitions are no copies."""
        return 2 * self.other_times > self.records


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """What the sample shows. `duplicates` are None if no column has ids.

    `delays` are those of the sample in the order of its slices and, inside a slice, of `order` (None: of appending).
    `day_share` is the share of records whose slice is the day or hour of their event time.
    """

    records: int
    invalid: Mapping[str, int]
    duplicates: DuplicateMeasures | None
    keys: KeyMeasures | None
    arrival: ArrivalMeasures | None
    delays: Delays
    commit_delays: CommitDelays | None
    order: tuple[str, ...] | None
    newest_event_ms: int | None
    in_own_slice: float | None


def ties(sample: Sample, order: Sequence[str]) -> int:
    """Return how many records of the sample have the same slice and the same values of the order as another one."""
    counts = _group_counts({"s": pa.array(sample.slice_ms), **_columns(sample, order)})
    return int(counts[counts > 1].sum())


def measure(
    sample: Sample, roles: Roles, order: Sequence[str] | None, *, window_ms: int, every_ms: int | None
) -> Measures:
    """Measure a sample. `every_ms` is the length of a slice; None if the sample has no slices by a partition."""
    assert roles.event_time is not None, "a table without an event time is not measured"
    time, problems = _judged(sample, roles)
    places = _in_log_order(sample, order)
    valid = problems == 0
    appended = _in_log_order(sample, None)
    appended = appended[valid[appended]]
    own_slice = None
    if every_ms is not None and valid.any():
        own_slice = float(
            np.mean((time - time % every_ms)[valid] == (sample.slice_ms - sample.slice_ms % every_ms)[valid])
        )
    return Measures(
        records=sample.records,
        invalid=_invalid(problems),
        duplicates=None if roles.record_id is None else _duplicates(sample, roles.record_id, event_time_ms=time),
        keys=_keys(sample, roles.key),
        arrival=_arrival(sample, roles.arrival_time, event_time_ms=time, valid=valid),
        delays=measure_delays(time[places], problems[places], window_ms=window_ms),
        commit_delays=(
            measure_commit_delays(time[appended], sample.commit[appended])
            if sample.has_order and len(appended)
            else None
        ),
        order=None if order is None else tuple(order),
        newest_event_ms=int(time[valid].max()) if valid.any() else None,
        in_own_slice=own_slice,
    )


def _judged(sample: Sample, roles: Roles) -> tuple[Int64s, Codes]:
    """Return the event time of each record, and its problem as a replay finds it."""
    assert roles.event_time is not None, "checked by the caller"
    read = instants.read_instants(_column(sample, roles.event_time.column), roles.event_time.unit)
    problems = [sample.undecodable, *(instants.key_problems(_column(sample, name)) for name in roles.key)]
    return read.ms, instants.first_problems(*problems, read.problems, instants.range_problems(read))


def _in_log_order(sample: Sample, order: Sequence[str] | None) -> Int64s:
    """Return the places of the records in log order: by slice, then by columns or by appending. Nulls are first."""
    if order is None:
        return np.lexsort((sample.place, sample.commit, sample.slice_ms)).astype(np.int64)
    columns = {
        "s": pa.array(sample.slice_ms), **_columns(sample, order), "c": pa.array(sample.commit),
        "p": pa.array(sample.place), "i": pa.array(np.arange(sample.records, dtype=np.int64)),
    }  # fmt: skip
    return np.asarray(query({"t": pa.table(columns)}, _SORTED)["i"].to_numpy(), dtype=np.int64)


def _columns(sample: Sample, names: Sequence[str]) -> dict[str, pa.ChunkedArray]:
    """Return columns under names that need no quotes in SQL."""
    return {f"o{number}": sample.rows[name] for number, name in enumerate(names)}


def _column(sample: Sample, name: str) -> pa.Array:
    values: pa.Array = sample.rows[name].combine_chunks()
    return values


def _group_counts(columns: Mapping[str, Any]) -> Int64s:
    """Return the number of records of each different combination of values."""
    return np.asarray(query({"t": pa.table(dict(columns))}, _COUNTS)["n"].to_numpy(), dtype=np.int64)


def _invalid(problems: Codes) -> dict[str, int]:
    codes, counts = np.unique(problems[problems != 0], return_counts=True)
    return dict(zip(instants.problem_names(codes).to_pylist(), counts.tolist(), strict=True))


def _duplicates(sample: Sample, name: str, *, event_time_ms: Int64s) -> DuplicateMeasures:
    rows = pa.table({**_columns(sample, [name]), "s": pa.array(sample.slice_ms), "e": pa.array(event_time_ms)})
    [(records, other_times, apart_ms)] = plain_rows(query({"t": rows}, _DUPLICATES))
    return DuplicateMeasures(records=int(records), other_times=int(other_times), apart_ms=int(apart_ms))


def _keys(sample: Sample, key: Sequence[str]) -> KeyMeasures | None:
    if not key or not sample.records:
        return None
    counts = _group_counts(_columns(sample, key))
    return KeyMeasures(keys=len(counts), greatest_share=int(counts.max()) / sample.records)


def _arrival(
    sample: Sample, role: TimeRole | None, *, event_time_ms: Int64s, valid: "np.ndarray[Any, np.dtype[np.bool_]]"
) -> ArrivalMeasures | None:
    if role is None:
        return None
    read = instants.read_instants(_column(sample, role.column), role.unit)
    own = valid & (read.problems == 0) & ~read.is_lost
    delay_ms = (read.ms - event_time_ms)[own]
    if not len(delay_ms):
        return None
    return ArrivalMeasures(
        records=len(delay_ms),
        before=float(np.mean(delay_ms < 0)),
        before_worst_ms=int(max(-delay_ms.min(), 0)),
        median_ms=int(np.median(delay_ms)),
        p99_ms=int(np.quantile(delay_ms, 0.99)),
    )
