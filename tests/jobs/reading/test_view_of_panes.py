"""Compares the published view with the operator's emissions for random pipeline files and logs.

Two laws. The view equals a model that plays the operator's emissions one by one. The records that the view shows, plus
those in open windows and those that the tallies count as never shown, are all records of all windows.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa

from jobs.lake.arrow_sql import plain_rows, query
from jobs.pipeline.models.pipeline import Pipeline
from jobs.reading.published import PublishedView, published_sql, quote_duckdb
from tests.jobs.replay.test_bucket_replay import COLUMNS, pipeline
from tests.support.bucket_feed import Row
from tests.support.bucket_replay import LogSlice, Replayed, replay_in_process
from tests.support.fuzzing import seeds
from tests.support.random_windows import random_windows
from tests.support.visible_panes import visible_as_emitted
from windowlib.errors import SpecError
from windowlib.profiles import EngineFault
from windowlib.records import tables

SLICE_MS = 100
SHOWN = ("key", "window_start", "window_end", "pane_index", "record_count", "amounts")
ROWS = {"records": {"count": {}}, "amounts": {"collect_list": "amount"}}


class Case(NamedTuple):
    """A pipeline, its log, and the result of the replay."""

    pipeline: Pipeline
    log: list[LogSlice]
    replayed: Replayed


def random_log(random: Random) -> list[LogSlice]:
    log, count = [], 0
    for number in range(random.randint(1, 4)):
        start_ms = number * SLICE_MS
        after_ms = sorted(random.randrange(SLICE_MS) for _ in range(random.choice([0, 3, 10, 20])))
        records = []
        for offset_ms in after_ms:
            at_ms = start_ms + offset_ms - random.choice([0, 0, 5, 40, 150])
            record = {"key": random.choice("ab"), "at_ms": at_ms, "seen_ms": start_ms + offset_ms, "amount": count}
            records.append({**record, "gap_ms": random.choice([5, 10, 30])})
            count += 1
        log.append(LogSlice(start_ms=start_ms, end_ms=start_ms + SLICE_MS, records=records))
    return log


def random_case(random: Random) -> Case | None:
    """Return a random case; None if the parts do not fit together, or the profile's engine would have failed."""
    semantics = random.choice(["strict", "strict", "flink", "beam"])
    bound = f"{random.choice([0, 20, 100])}ms"
    try:
        found = pipeline(
            windows=random_windows(random),
            semantics=semantics,
            watermark={"kind": "bounded", "out_of_orderness": bound},
            aggregates=ROWS,
        )
        log = random_log(random)
        chunks = random.choice([None, [1] * len(log)])
        return Case(found, log, replay_in_process(found, COLUMNS, log, chunks=chunks))
    except (SpecError, EngineFault):
        return None


def windows_of(rows: Sequence[Row]) -> Mapping[tuple[Any, ...], list[Row]]:
    """Return the rows of each window, in the order in which the operator emitted them."""
    found: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        found[row["key"], row["window_start"], row["window_end"]].append(row)
    return found


def played() -> Iterator[tuple[int, Case]]:
    for seed in seeds(120):
        case = random_case(Random(seed))
        if case is not None:
            yield seed, case


def views(cases: Mapping[int, Case]) -> Mapping[int, list[tuple[Any, ...]]]:
    """Return the published view of each case. One query reads all cases, because each case has its own keys."""
    parts = []
    for seed, case in cases.items():
        for rows in case.replayed.arrow[tables.WINDOW_OUTPUTS]:
            seeded = pa.array([f"{seed}/{key}" for key in rows["key"].to_pylist()], pa.string())
            parts.append(rows.set_column(rows.schema.get_field_index("key"), "key", seeded))
    sql = published_sql(PublishedView(keys=["key"], columns=SHOWN), relation="panes", quote=quote_duckdb)
    found: dict[int, list[tuple[Any, ...]]] = {seed: [] for seed in cases}
    for key, *rest in plain_rows(query({"panes": pa.concat_tables(parts)}, sql)):
        seed, own = key.split("/")
        found[int(seed)].append((own, *rest))
    return found


UNSHOWN = ("never_fired", "left_over", "purged", "F1_identical_session", "retired_at_last_watermark")


def edges_not_shown(replayed: Replayed) -> int:
    """Count the records in windows that no pane showed: open at the end, or closed for a reason other than a firing."""
    last = max(row["slice_id"] for row in replayed.rows[tables.TALLIES])
    opened = [row for row in replayed.rows[tables.WINDOW_STATE] if row["slice_id"] == last and not row["is_orphan"]]
    tallies = [row for row in replayed.rows[tables.TALLIES] if row["equation"] == "edges"]
    closed: int = sum(row["record_count"] for row in tallies if row["term"].removeprefix("closed:") in UNSHOWN)
    return closed + sum(int(row["edge_count"] - row["fired_count"]) for row in opened)


def check_model(case: Case, shown: Sequence[tuple[Any, ...]]) -> None:
    """Check that the view equals the model that plays the operator's emissions."""
    emitted = windows_of(case.replayed.rows[tables.WINDOW_OUTPUTS])
    expected = [tuple(row[name] for name in SHOWN) for rows in emitted.values() for row in visible_as_emitted(rows)]
    assert sorted(map(repr, shown)) == sorted(map(repr, expected)), case.pipeline.windows


def check_records(case: Case, shown: Sequence[tuple[Any, ...]]) -> None:
    """Check that the view shows each record of a window at most once, and all records that any pane showed."""
    windows = case.pipeline.windows
    assert windows is not None
    if windows.count is not None:
        assert len(shown) == len(case.replayed.rows[tables.WINDOW_OUTPUTS]), "each firing is a window of its own"
        return
    held = Counter((*row[:3], amount) for row in shown for amount in row[-1])
    assert not [place for place, times in held.items() if times > 1], windows
    new = sum(row["record_count"] for row in case.replayed.rows[tables.TALLIES] if row["term"] == "new")
    assert sum(held.values()) + edges_not_shown(case.replayed) == new, windows


def test_readers_see_the_last_panes_and_miss_no_record() -> None:
    cases = dict(played())
    assert len(cases) > 50
    for seed, shown in views(cases).items():
        print(f"HINDCAST_SEED={seed}")  # noqa: T201 - pytest shows it with a failure
        check_model(cases[seed], shown)
        check_records(cases[seed], shown)
