"""Derived columns and the filter in replays without Spark: the rows are those of a log that stores the columns."""

import json
from collections import Counter
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.lake.lake import Lake
from jobs.ledger.ledger import Ledger
from jobs.ledger.view import StagedRun
from jobs.orchestration.outcomes import RequestOutcome
from jobs.pipeline.models.pipeline import Pipeline
from jobs.reading.verify import verify
from jobs.replay.sizes import Sizes
from jobs.review.explain import explain
from jobs.review.pages.record_search import search_records
from jobs.runs import Verdict
from tests.support.delta_logs import track_rows
from tests.support.fuzzing import seeds
from tests.support.replays import NOW_MS, pipeline_of, run_range

FIRST: Final = date(2026, 1, 5)
DAY_MS: Final = 86_400_000
DAYS: Final = 3
SIZES: Final = Sizes(local_records=10**9)
PAYLOAD: Final = pa.struct([("user", pa.struct([("id", pa.string())])), ("ts", pa.int64())])
RAW: Final = pa.schema(
    [("id", pa.string()), ("topic", pa.string()), ("payload", PAYLOAD), ("value", pa.string()), ("day", pa.date32())]
)
STORED: Final = pa.schema(
    [("id", pa.string()), ("user_id", pa.string()), ("at", pa.int64()), ("amount", pa.float64()), ("day", pa.date32())]
)
DERIVED: Final = """
pipeline: derived
log:
  table: raw
  key: [user_id]
  event_time: {column: payload.ts, unit: ms}
  record_id: id
  slice: {by: day}
  columns:
    user_id: "upper(payload.user.id)"
    amount: "cast(json_extract(value, '$.amount') as double)"
  where: "topic = 'clicks'"
watermark: {kind: bounded, out_of_orderness: 6h}
windows: {tumbling: {size: 5h}}
aggregates: {n: {count: {}}, total: {sum: amount}}
"""
PLAIN: Final = """
pipeline: plain
log:
  table: stored
  key: [user_id]
  event_time: {column: at, unit: ms}
  record_id: id
  slice: {by: day}
watermark: {kind: bounded, out_of_orderness: 6h}
windows: {tumbling: {size: 5h}}
aggregates: {n: {count: {}}, total: {sum: amount}}
"""


def record(random: Random, day: int, number: int) -> dict[str, Any]:
    at_ms = ((FIRST - date(1970, 1, 1)).days + day) * DAY_MS + random.randrange(-DAY_MS // 2, DAY_MS)
    amount: Any = random.choice((None, random.randrange(-9, 9), random.random()))
    return {
        "id": f"r{day}-{number}",
        "topic": random.choice(("clicks", "clicks", "views", None)),
        "payload": {"user": {"id": random.choice("abc")}, "ts": at_ms},
        "value": json.dumps({"amount": amount}),
        "day": FIRST + timedelta(days=day),
    }


def write(lake: Path, days: Sequence[Sequence[dict[str, Any]]]) -> None:
    """Write a log of nested records, and the log of the records that the filter keeps, with the columns stored."""
    for rows in days:
        write_deltalake(str(lake / "raw"), pa.Table.from_pylist(list(rows), RAW), mode="append", partition_by=["day"])
        kept = [
            {
                "id": row["id"],
                "user_id": row["payload"]["user"]["id"].upper(),
                "at": row["payload"]["ts"],
                "amount": json.loads(row["value"])["amount"],
                "day": row["day"],
            }
            for row in rows
            if row["topic"] == "clicks"
        ]
        write_deltalake(str(lake / "stored"), pa.Table.from_pylist(kept, STORED), mode="append", partition_by=["day"])
    track_rows(lake / "raw")
    track_rows(lake / "stored")


def replay(lake: Path, pipeline: Pipeline, *, sizes: Sizes = SIZES) -> RequestOutcome:
    return run_range(None, lake, pipeline, (str(FIRST), str(FIRST + timedelta(days=DAYS))), sizes=sizes)


def outputs(lake: Path, pipeline: str, table: str = "window_outputs") -> Counter[str]:
    rows = DeltaTable(str(lake / pipeline / table)).to_pyarrow_table().to_pylist()
    own = ("slice_id", "user_id", "window_start", "window_end", "pane_index", "kind", "n", "total", "record_count")
    return Counter(json.dumps([row[name] for name in own], default=str) for row in rows)


def runs_of(outcome: RequestOutcome) -> list[StagedRun]:
    return list(outcome.runs)


@pytest.mark.slow
def test_derived_columns_give_the_rows_of_a_log_that_stores_them(tmp_path: Path) -> None:
    for seed in seeds(3):
        random, lake = Random(seed), tmp_path / str(seed)
        lake.mkdir()
        write(lake, [[record(random, day, number) for number in range(60)] for day in range(DAYS)])
        sizes = Sizes(
            local_records=10**9,
            rows_per_read=random.choice((7, 1_000)),
            combined_records=random.choice((0, 10**9)),
            records_per_columnar_bucket=random.choice((7, 10**6)),
        )
        derived = runs_of(replay(lake, pipeline_of(DERIVED), sizes=sizes))
        plain = runs_of(replay(lake, pipeline_of(PLAIN), sizes=sizes))
        assert outputs(lake, "derived") == outputs(lake, "plain")
        assert sum(outputs(lake, "derived").values()) > 5
        for one, other in zip(derived, plain, strict=True):
            counts, stored = one.result.counts, other.result.counts
            assert counts.read == 60
            assert counts.filtered == 60 - stored.read > 0
            assert (counts.assigned, counts.late, counts.invalid) == (stored.assigned, stored.late, stored.invalid)
            laws = {check.check: check for check in one.result.checks}
            assert laws["conservation"].verdict is Verdict.PASS
            assert f"+ {counts.filtered:,}" in laws["conservation"].message


def test_a_failed_expression_makes_its_record_invalid_and_no_other(tmp_path: Path) -> None:
    random = Random(3)
    rows = [record(random, 0, number) | {"topic": "clicks"} for number in range(20)]
    rows[3]["value"], rows[4]["value"], rows[5]["value"] = "no JSON", '{"amount": "x"}', '{"amount": null}'
    rows[6] |= {"topic": "views", "value": "no JSON"}
    write_deltalake(str(tmp_path / "raw"), pa.Table.from_pylist(rows, RAW), partition_by=["day"])
    track_rows(tmp_path / "raw")
    [first, *_] = runs_of(replay(tmp_path, pipeline_of(DERIVED)))
    counts = first.result.counts
    assert (counts.read, counts.invalid, counts.filtered) == (20, 2, 1)
    stored = DeltaTable(str(tmp_path / "derived" / "invalid_records")).to_pyarrow_table().to_pylist()
    assert {(row["record_id"], row["reason"], row["detail"]) for row in stored} == {
        ("r0-3", "expression_failed", "amount"),
        ("r0-4", "expression_failed", "amount"),
    }
    # A record has the columns of the log and no derived ones.
    assert set(stored[0]["record"]) == set(RAW.names)


def test_a_record_with_a_text_that_is_not_utf8_is_invalid_and_not_filtered(tmp_path: Path) -> None:
    random = Random(4)
    rows = pa.Table.from_pylist([record(random, 0, number) | {"topic": "views"} for number in range(3)], RAW)
    broken = pa.array([b"\xff\xfe", b"{}", b"{}"]).cast(pa.binary()).view(pa.string())
    rows = rows.set_column(3, RAW.field("value"), broken)
    write_deltalake(str(tmp_path / "raw"), rows, partition_by=["day"])
    track_rows(tmp_path / "raw")
    [first, *_] = runs_of(replay(tmp_path, pipeline_of(DERIVED)))
    assert (first.result.counts.invalid, first.result.counts.filtered) == (1, 2)


def test_a_filter_that_fails_makes_the_record_invalid(tmp_path: Path) -> None:
    random = Random(5)
    rows = [record(random, 0, number) for number in range(10)]
    rows[2]["value"] = "no JSON"
    write_deltalake(str(tmp_path / "raw"), pa.Table.from_pylist(rows, RAW), partition_by=["day"])
    track_rows(tmp_path / "raw")
    text = DERIVED.replace("topic = 'clicks'", "value ->> '$.amount' is not null or amount is null")
    [first, *_] = runs_of(replay(tmp_path, pipeline_of(text)))
    assert (first.result.counts.invalid, first.result.counts.filtered) == (1, 0)
    [stored] = DeltaTable(str(tmp_path / "derived" / "invalid_records")).to_pyarrow_table().to_pylist()
    assert (stored["record_id"], stored["detail"]) == ("r0-2", "where, amount")


def test_the_text_of_an_expression_changes_the_runs_and_its_blanks_do_not(tmp_path: Path) -> None:
    random = Random(6)
    write(tmp_path, [[record(random, day, number) for number in range(9)] for day in range(DAYS)])
    first = [run.result.run_id for run in runs_of(replay(tmp_path, pipeline_of(DERIVED)))]
    same = DERIVED.replace("upper(payload.user.id)", "UPPER( (payload.user.id) )")
    other = DERIVED.replace("upper(payload.user.id)", "lower(payload.user.id)")
    assert [run.result.run_id for run in runs_of(replay(tmp_path, pipeline_of(same)))] == first
    assert not {run.result.run_id for run in runs_of(replay(tmp_path, pipeline_of(other)))} & set(first)


def test_a_filtered_record_is_part_of_the_input(tmp_path: Path) -> None:
    """Otherwise a replay of a range would not see that the log has another record where it was filtered."""
    fingerprints = []
    for number, topic in enumerate(("views", "orders")):
        lake = tmp_path / str(number)
        lake.mkdir()
        random = Random(7)
        rows = [record(random, 0, place) | {"topic": "clicks"} for place in range(5)]
        rows[2]["topic"] = topic
        write_deltalake(str(lake / "raw"), pa.Table.from_pylist(rows, RAW), partition_by=["day"])
        track_rows(lake / "raw")
        fingerprints.append(runs_of(replay(lake, pipeline_of(DERIVED)))[0].result.input_fingerprint)
    assert fingerprints[0] != fingerprints[1]


def test_a_record_is_explained_by_its_derived_columns(tmp_path: Path) -> None:
    random = Random(8)
    rows = [record(random, 0, place) | {"topic": "clicks"} for place in range(5)]
    rows[2]["topic"] = "views"
    write(tmp_path, [rows, *[[record(random, day, 9)] for day in range(1, DAYS)]])
    pipeline = pipeline_of(DERIVED)
    replay(tmp_path, pipeline)
    view = Ledger(Lake(root=str(tmp_path)).ledger("derived"), now_ms=lambda: NOW_MS).view()
    lake = Lake(root=str(tmp_path))
    filtered = explain(lake, pipeline, "r0-2", view=view)
    assert filtered.fate == "filtered"
    assert "log.where" in filtered.sentence
    assigned = explain(lake, pipeline, "r0-1", view=view)
    assert assigned.fate == "assigned"
    assert f"user_id {rows[1]['payload']['user']['id'].upper()}" in assigned.sentence
    assert assigned.details["fired"] or assigned.details["open"]


def test_a_record_is_found_by_an_id_that_is_derived(tmp_path: Path) -> None:
    random = Random(10)
    rows = [record(random, 0, place) | {"topic": "clicks"} for place in range(5)]
    rows[1]["payload"]["ts"], rows[2]["topic"] = None, "views"
    write_deltalake(str(tmp_path / "raw"), pa.Table.from_pylist(rows, RAW), partition_by=["day"])
    track_rows(tmp_path / "raw")
    text = DERIVED.replace("record_id: id", "record_id: event").replace(
        "columns:\n", "columns:\n    event: concat('e-', id)\n"
    )
    pipeline, lake = pipeline_of(text), Lake(root=str(tmp_path))
    replay(tmp_path, pipeline)
    view = Ledger(lake.ledger("derived"), now_ms=lambda: NOW_MS).view()
    fates = {f"e-r0-{place}": explain(lake, pipeline, f"e-r0-{place}", view=view).fate for place in range(3)}
    assert fates == {"e-r0-0": "assigned", "e-r0-1": "invalid", "e-r0-2": "filtered"}
    found = search_records(lake, pipeline, view, part="R0-3", seconds=60)
    assert [one.record_id for one in found.records] == ["e-r0-3"]


PATHS: Final = """
pipeline: derived
log:
  table: raw
  key: [payload.user.id]
  event_time: {column: payload.ts, unit: ms}
  record_id: payload.ts
  slice: {by: day}
watermark: {kind: bounded, out_of_orderness: 6h, sources: {column: payload.user.id}}
windows: {session: {gap: {column: payload.ts, unit: us}}}
aggregates: {n: {count: {}}, last: {max: payload.ts}}
"""


def test_paths_are_allowed_wherever_a_column_is_named(tmp_path: Path) -> None:
    """The rows are read back under the stored spec, and the key has dots in its name."""
    random = Random(11)
    rows = [[record(random, day, number) for number in range(20)] for day in range(DAYS)]
    write(tmp_path, rows)
    pipeline, lake = pipeline_of(PATHS), Lake(root=str(tmp_path))
    outcome = replay(tmp_path, pipeline)
    assert sum(run.result.counts.assigned for run in outcome.runs) > 20
    view = Ledger(lake.ledger("derived"), now_ms=lambda: NOW_MS).view()
    assert not verify(lake, "derived", view).findings
    found = explain(lake, pipeline, str(rows[0][0]["payload"]["ts"]), view=view)
    assert found.fate == "assigned"
    assert f"payload.user.id {rows[0][0]['payload']['user']['id']}" in found.sentence
    assert found.details["fired"] or found.details["open"]


def test_derived_columns_of_a_log_that_is_sorted_are_those_of_one_in_order(tmp_path: Path) -> None:
    """The order is by columns of the log. The expressions are evaluated on the sorted records."""
    random = Random(9)
    rows = [record(random, 0, number) for number in range(60)]
    text = DERIVED.replace("  slice: {by: day}", "  slice: {by: day}\n  order: [id]")
    found = []
    for name, written in (("in order", sorted(rows, key=lambda row: row["id"])), ("shuffled", rows[::-1])):
        lake = tmp_path / name
        write_deltalake(str(lake / "raw"), pa.Table.from_pylist(list(written), RAW), partition_by=["day"])
        found.append([run.result.run_id for run in runs_of(replay(lake, pipeline_of(text)))])
        assert outputs(lake, "derived")
    assert found[0] == found[1]
