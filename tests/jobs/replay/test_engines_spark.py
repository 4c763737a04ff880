"""Every engine over real flights, through pipeline file, replay, checkpoint, side tables and laws like any other.

Each pipeline replays two days as one chunk and as two: same runs, digests and checkpoints. That the audit closes is
part of every replay; what is asserted beyond it is what only this engine does.
"""

import json
import shutil
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pytest

from jobs.demo.flights import TABLE, load_flights
from jobs.lake.lake import Lake
from jobs.pipeline.files import parse_pipeline
from jobs.pipeline.models.pipeline import Pipeline
from jobs.planning.request_context import open_request_context
from jobs.reading.published import read_published
from jobs.reading.verify import verify
from jobs.review.explain import explain
from jobs.review.report.page import write_report
from tests.support.replays import NOW_MS, run_range, what_was_run
from tests.support.spark_session import SparkSession

pytestmark = pytest.mark.spark

DAYS = (date(2013, 2, 1), date(2013, 2, 3))
BOUNDS = ("2013-02-01", "2013-02-03")
LOG = """
log:
  table: event_logs/flights
  {key}
  event_time: {{column: departed_at, unit: ms}}
  arrival_time: {{column: reported_at, unit: ms}}
  record_id: flight_id
  slice: {{by: ingest_date, every: 1d, timezone: UTC, first: 2013-01-01, last: 2014-01-01}}
"""

STORM = """
windows:
  storm: {length: {count: 40}, slide: {count: 20}, lag: 6h, watermark_interval: 10m, late: true}
aggregates: {flights: {count: {}}, delay_worst: {max: dep_delay}}
"""
ATLAS = """
windows:
  atlas:
    $hoppingWindow:
      interval: {size: 20, unit: minute}
      hopSize: {size: 30, unit: minute}
      allowedLateness: {size: 5, unit: hour}
      pipeline:
        - $match: {dep_delay: {$gt: 0}}
        - $group: {_id: $origin, flights: {$count: {}}, worst: {$max: $dep_delay}, mean: {$avg: $dep_delay}}
        - $sort: {_id: 1}
"""
BEAM = """
semantics: beam
watermark: {kind: bounded, out_of_orderness: 6h}
windows:
  tumbling: {size: 3h}
  trigger:
    after_watermark:
      early: {repeatedly: {after_count: 10}}
      late: {repeatedly: {after_count: 1}}
  allowed_lateness: 12h
  accumulation: retracting
aggregates: {flights: {count: {}}, delay_total: {sum: dep_delay}}
"""
PROCESS = """
watermark: {kind: bounded, out_of_orderness: 6h}
process:
  function: {name: "user_functions:Rests", columns: [dest]}
  output: {rested_ms: bigint, flights: bigint}
  state: {last_ms: {kind: value, type: bigint}, seen: {kind: map, type: bigint}}
  side_outputs: {reports: {due_ms: bigint, destinations: array<string>}}
"""
CLOCK = """
watermark:
  kind: bounded
  out_of_orderness: 1h
  emit: {every: 5m}
  sources: {column: carrier, idle_timeout: 2h}
windows:
  sliding: {size: 2h, slide: 30m}
  trigger: {purging: {timeout: {trigger: {delta: {column: dep_delay, threshold: 30}}, after: 20m}}}
  evictor: {time: {keep: 1h}}
  allowed_lateness: 1h
  leftovers: report
aggregates: {flights: {count: {}}, first_delay: {first: dep_delay}}
"""
FUNCTIONS = '''
"""A user's module beside the pipeline file."""
from windowlib.keyed.process_operator import KeyedProcessFunction

HOUR_MS = 3_600_000


class Rests(KeyedProcessFunction):
    """How long each aircraft rested; every half day of the clock, where it has been."""

    def process_record(self, record, ctx):
        last, seen = ctx.state.value("last_ms"), ctx.state.map("seen")
        rested = None if last.get() is None else record.timestamp_ms - last.get()
        seen.put(record.value["dest"], seen.get(record.value["dest"], 0) + 1)
        last.set(max(record.timestamp_ms, last.get() or 0))
        half_day = 12 * HOUR_MS
        ctx.register_processing_timer(ctx.processing_time_ms // half_day * half_day + half_day)
        ctx.register_event_timer(record.timestamp_ms + 9 * HOUR_MS)
        return [(rested, sum(count for _, count in seen.items()))]

    def on_timer(self, at_ms, ctx):
        seen = ctx.state.map("seen")
        if ctx.domain == "processing":
            ctx.output("reports", {"due_ms": at_ms, "destinations": sorted(name for name, _ in seen.items())})
            return []
        return [{"rested_ms": at_ms, "flights": 0}] if at_ms % 2 else []
'''
ORIGIN, TAIL, ALL = "key: [origin]", "key: [tailnum]", "over: all"
PIPELINES = {
    "storm": (STORM, ORIGIN),
    "atlas": (ATLAS, ALL),
    "beam": (BEAM, ORIGIN),
    "process": (PROCESS, TAIL),
    "clock": (CLOCK, ORIGIN),
}
SLOW = frozenset({"storm", "beam", "clock"})
"""`make slow` plays these over Spark. `make test` plays them through the code of a Spark task, without Spark."""


class Replayed(NamedTuple):
    lake: Lake
    pipeline: Pipeline

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        """Ask DuckDB about what was committed, each table under its name."""
        from deltalake import DeltaTable

        with duckdb.connect() as connection:
            for path in Path(self.lake.root, self.pipeline.name).iterdir():
                if path.name != "ledger":
                    connection.register(path.name, DeltaTable(str(path)).to_pyarrow_table())
            return connection.execute(text).fetchall()

    def log(self, text: str) -> list[tuple[Any, ...]]:
        """Ask DuckDB about the log."""
        from deltalake import DeltaTable

        with duckdb.connect() as connection:
            connection.register("log", DeltaTable(str(Path(self.lake.root, TABLE))).to_pyarrow_table())
            return connection.execute(text).fetchall()


@pytest.fixture(scope="module")
def flights(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert spark is not None
    lake = tmp_path_factory.mktemp("engines")
    load_flights(str(lake), *DAYS)
    (lake / "user_functions.py").write_text(FUNCTIONS, encoding="utf-8")
    return lake


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in PIPELINES]
)
def replayed(request: pytest.FixtureRequest, spark: SparkSession, flights: Path) -> Replayed:
    name = str(request.param)
    body, key = PIPELINES[name]
    pipeline = parse_pipeline(f"pipeline: {name}\n{LOG.format(key=key)}{body}", source=str(flights / f"{name}.yaml"))
    whole = run_range(spark, flights, pipeline, BOUNDS)
    kept = flights / f"{name}-in-one-chunk"
    shutil.move(flights / name, kept / name)
    again = run_range(spark, flights, pipeline, BOUNDS, chunk=1)
    assert what_was_run(again) == what_was_run(whole)
    return Replayed(Lake(root=str(flights)), pipeline)


CHECKS: dict[str, list[tuple[str, tuple[Any, ...]]]] = {
    "storm": [
        ("SELECT count(*) > 50, max(record_count), min(window_end) IS NOT NULL FROM window_outputs", (True, 40, True)),
        ("SELECT count(*) > 0 FROM late_records WHERE missed_all", (True,)),
    ],
    "atlas": [
        ("SELECT count(*) > 100, count(DISTINCT window_start) > 40 FROM window_outputs", (True, True)),
        ("SELECT count(*) > 100 FROM unassigned_records", (True,)),  # the gaps of ten minutes
        ("SELECT count(*) > 0 FROM side_outputs_dead_letters", (True,)),
        ("SELECT (SELECT count(*) FROM side_outputs_dead_letters) = (SELECT count(*) FROM late_records)", (True,)),
    ],
    "beam": [
        ("SELECT count(*) > 20 FROM window_outputs WHERE kind = 'retraction'", (True,)),
        (
            """SELECT count(*) FROM (
                 SELECT origin, window_start, sum(CASE kind WHEN 'result' THEN flights ELSE -flights END) AS told,
                        arg_max(flights, (pane_index, kind = 'result')) FILTER (kind = 'result') AS last
                 FROM window_outputs GROUP BY ALL) WHERE told IS DISTINCT FROM last""",
            (0,),
        ),
        ("SELECT min(nonspeculative_index), max(nonspeculative_index) >= 0 FROM window_outputs", (-1, True)),
    ],
    "process": [
        ("SELECT count(*) > 1000, count(rested_ms) > 0, count(window_start) FROM window_outputs", (True, True, 0)),
        ("SELECT count(DISTINCT due_ms), max(len(destinations)) > 1 FROM side_outputs_reports", (3, True)),
        ("SELECT count(DISTINCT name), bool_and(scope = 'key') FROM user_state", (2, True)),
        ("SELECT count(DISTINCT domain) FROM timers", (2,)),
    ],
    "clock": [
        ("SELECT count(*) > 100, count(*) FILTER (timing = 'EARLY') > 0 FROM window_outputs", (True, True)),
        ("SELECT count(*) > 10, count(DISTINCT source) > 5 FROM watermarks", (True, True)),
        ("SELECT count(*) > 0 FROM tallies WHERE term LIKE 'closed:%' AND term <> 'closed:fired'", (True,)),
    ],
}  # fmt: skip


def test_what_only_this_engine_does_is_there(replayed: Replayed) -> None:
    for sql, expected in CHECKS[replayed.pipeline.name]:
        assert replayed.sql(sql) == [expected], sql


def test_the_published_view_shows_each_window_once(replayed: Replayed) -> None:
    work = open_request_context(replayed.pipeline, replayed.lake, now_ms=lambda: NOW_MS)
    rows = read_published(replayed.lake, replayed.pipeline.name, work.ledger.view())
    assert rows.num_rows > 0
    assert set(rows["kind"].to_pylist()) == {"result"}
    if replayed.pipeline.name == "atlas":
        documents = [json.loads(text) for text in rows["document"].to_pylist()]
        assert {one["_id"] for one in documents} == {"EWR", "JFK", "LGA"}
        assert all({"start", "end"} <= one["_stream_meta"]["window"].keys() for one in documents)


@pytest.mark.slow
def test_every_stored_row_is_what_was_written(replayed: Replayed) -> None:
    """Law L9 over every engine's tables: ids and checks come out of the stored rows as the tasks made them."""
    work = open_request_context(replayed.pipeline, replayed.lake, now_ms=lambda: NOW_MS)
    found = verify(replayed.lake, replayed.pipeline.name, work.ledger.view())
    assert found.findings == ()
    assert found.rows > 0


@pytest.mark.slow
def test_a_record_is_explained_and_the_report_is_written(replayed: Replayed, tmp_path: Path) -> None:
    """Whatever the windows are: what looks at runs must cope with windows without bounds, or without windows."""
    view = open_request_context(replayed.pipeline, replayed.lake, now_ms=lambda: NOW_MS).ledger.view()
    [flight] = replayed.log("SELECT min(flight_id) FROM log WHERE departed_at IS NOT NULL")
    explanation = explain(replayed.lake, replayed.pipeline, str(flight[0]), view=view)
    assert explanation.fate in {"assigned", "late", "unassigned"}
    assert str(flight[0]) in explanation.sentence
    assert Path(write_report(replayed.lake, replayed.pipeline, tmp_path / "report.html")).stat().st_size > 10_000
