"""Edits of the outputs while windows are open: the specs of a pipeline share the tables of its state."""

from collections.abc import Sequence
from pathlib import Path
from shutil import rmtree
from typing import Any, Final

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.ledger.view import RequestKind
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.models.retention import RetentionGrammar
from jobs.planning.request_context import open_request_context
from jobs.publishing.cleaning import clean_lake
from jobs.publishing.decisions import cancel
from jobs.publishing.optimistic_check import By
from jobs.readers import published_table
from jobs.reading.verify import verify
from jobs.replay.sizes import Sizes
from tests.support.day_chains import DAY_MS, FIRST_MS, HOUR_MS
from tests.support.replays import context_in, pipeline_of, run_range, what_was_run
from windowlib.errors import SpecError

RETRACTING: Final = ", trigger: {count: 2}, accumulation: retracting, leftovers: report"
SPECS: Final = {
    "double": ("sum: v", "avg: v", "variance: v", "min: v", "first: v", "max: v", "last: v"),
    "bigint": ("last: i", "count: {}", "sum: i", "min: i", "first: i", "max: i"),
    "array<string>": ("last: tags", "collect_list: s", "first: tags"),
}
"""Aggregates by the type of their output."""
OUTPUTS: Final = (
    "n: {count: {}}, a: {sum: v}",
    "a: {sum: v}, n: {count: {}}",
    "n: {count: {}}",
    "n: {count: {}}, z: {collect_list: s}, a: {sum: v}",
    "b: {sum: v}, n: {count: {}}",
    "n: {count: {}}, a: {max: v}, r: {last: st}",
)
DAYS: Final = 3
STATE: Final = ("window_state", "window_outputs")


def append(lake: Path, days: Sequence[int], *, inner: pa.StructType | None = None) -> None:
    """Append the records of days: every two hours one, and each fourth is 30 hours late."""
    inner = inner or pa.struct([("x", pa.int64()), ("y", pa.string())])
    kinds = {
        "k": pa.int64(), "at": pa.int64(), "seq": pa.int64(), "i": pa.int64(), "v": pa.float64(), "s": pa.string(),
        "tags": pa.list_(pa.string()), "st": inner, "day": pa.date32(),
    }  # fmt: skip
    rows = [
        {
            "k": number % 3, "at": FIRST_MS + number * 2 * HOUR_MS - (30 * HOUR_MS if number % 4 == 3 else 0),
            "seq": number, "i": number * 7 % 11, "v": number / 8, "s": f"s{number}", "tags": ["a", f"{number}"],
            "st": {field.name: number if field.type == pa.int64() else "y" for field in inner},
            "day": FIRST_MS // DAY_MS + day,
        }
        for day in days
        for number in range(day * 12, day * 12 + 12)
    ]  # fmt: skip
    table = pa.Table.from_pylist(rows, pa.schema([*kinds.items()]))
    write_deltalake(str(lake / "log"), table, mode="append", partition_by=["day"], schema_mode="merge")


def edited(outputs: str, mode: str = "") -> Pipeline:
    return pipeline_of(
        "pipeline: p\nlog:\n  table: log\n  key: [k]\n  event_time: {column: at, unit: ms}\n  slice: {by: day}\n"
        "  order: [seq]\nwatermark: {kind: bounded, out_of_orderness: 1h}\n"
        f"windows: {{tumbling: {{size: 30h}}{mode}}}\naggregates: {{{outputs}}}\n"
    )


def replayed(lake: Path, pipeline: Pipeline, first: int, end: int, **asked: Any) -> list[dict[str, object]]:  # noqa: ANN401
    """Run days, and return their runs."""
    sizes = Sizes(local_records=10**9, full_state_rows=0)
    bounds = (f"1970-01-{5 + first:02}", f"1970-01-{5 + end:02}")
    return what_was_run(run_range(None, lake, pipeline, bounds, sizes=sizes, **asked))


def alone(place: Path, pipeline: Pipeline) -> list[dict[str, object]]:
    """Return the runs in a lake of their own."""
    place.mkdir()
    append(place, range(DAYS))
    return replayed(place, pipeline, 0, DAYS)


def findings(lake: Path, pipeline: Pipeline) -> object:
    work = context_in(lake, pipeline)
    return verify(work.lake, "p", work.ledger.view()).findings


def columns(lake: Path) -> dict[str, str]:
    return {name: DeltaTable(str(lake / "p" / name)).schema().to_json() for name in STATE}


def as_candidates(tmp_path: Path, specs: Sequence[Pipeline]) -> None:
    """Publish days of the first spec, try the others as candidates between them, and compare with runs alone."""
    lake = tmp_path / "lake"
    lake.mkdir()
    append(lake, range(DAYS))
    expected = [alone(tmp_path / str(number), spec) for number, spec in enumerate(specs)]
    others = [*zip(specs, expected, strict=True)][1:]
    for day in range(DAYS):
        assert replayed(lake, specs[0], day, day + 1) == expected[0][day : day + 1]
        for spec, runs in others if day == 1 else ():
            assert replayed(lake, spec, 0, DAYS, chunk=2, kind=RequestKind.CANDIDATE) == runs, spec
    assert findings(lake, specs[0]) == ()


@pytest.mark.slow
@pytest.mark.parametrize("kind", SPECS)
def test_the_states_of_aggregates_with_one_name_do_not_disturb_each_other(tmp_path: Path, kind: str) -> None:
    as_candidates(tmp_path, [edited(f"n: {{count: {{}}}}, a: {{{aggregate}}}") for aggregate in SPECS[kind]])


@pytest.mark.slow
def test_the_outputs_of_panes_that_are_retracted_may_change(tmp_path: Path) -> None:
    as_candidates(tmp_path, [edited(outputs, RETRACTING) for outputs in OUTPUTS])


def test_a_state_that_the_table_cannot_hold_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    append(tmp_path, range(3))
    published = edited("a: {avg: i}")
    replayed(tmp_path, published, 0, 2)
    before = columns(tmp_path)
    with pytest.raises(
        SpecError, match=r"column 'acc_a' .* is a struct.*binary.* rename it \(acc_NAME: output NAME\).*`hindcast clean"
    ):
        replayed(tmp_path, edited("a: {variance: i}, b: {max: v}"), 0, 2, kind=RequestKind.CANDIDATE)
    assert columns(tmp_path) == before
    replayed(tmp_path, published, 2, 3)
    assert findings(tmp_path, published) == ()


@pytest.mark.slow
def test_a_column_of_a_cancelled_candidate_is_free_when_a_clean_up_has_removed_its_rows(tmp_path: Path) -> None:
    """Defect: it kept its type for ever, so that a later pipeline file with another type was refused."""
    append(tmp_path, range(DAYS))
    published, tried, other = (edited(f"n: {{count: {{}}}}{more}") for more in ("", ", b: {max: v}", ", b: {max: i}"))
    replayed(tmp_path, published, 0, 2)
    replayed(tmp_path, tried, 0, 2, kind=RequestKind.CANDIDATE)
    with pytest.raises(SpecError, match=r"column '(acc_)?b' of table .* `hindcast clean PIPELINE --remove` frees it"):
        replayed(tmp_path, other, 0, 2, kind=RequestKind.CANDIDATE)
    work = context_in(tmp_path, published)
    retention = RetentionGrammar.model_validate({"unpublished": "1d"})
    later_ms = work.ledger.now_ms() + 3 * DAY_MS
    cleaned = published.model_copy(update={"retention": retention})
    later = open_request_context(cleaned, work.lake, now_ms=lambda: later_ms)
    for request in work.ledger.view().open_requests():
        cancel(later, request.request_id, reason="tried", by=By(who="ann", decision_id=work.new_id()))
    clean_lake(later, older_than_ms=0, who="ann", dry_run=False)
    assert replayed(tmp_path, other, 0, 2, kind=RequestKind.CANDIDATE) == alone(tmp_path / "other", other)[:2]
    assert findings(tmp_path, published) == ()


@pytest.mark.slow
def test_nested_fields_of_the_log_may_be_lost_moved_and_added(tmp_path: Path) -> None:
    """The records of late rows keep the fields that their table has."""
    fields = {"x": pa.int64(), "y": pa.string(), "z": pa.int64()}
    pipeline = edited("n: {count: {}}")
    for day, names in enumerate(("xy", "x", "yx", "zx", "xyz")):
        rmtree(tmp_path / "log", ignore_errors=True)
        append(tmp_path, range(DAYS + 2), inner=pa.struct([(name, fields[name]) for name in names]))
        replayed(tmp_path, pipeline, day, day + 1)
    assert findings(tmp_path, pipeline) == ()
    late = published_table(str(tmp_path), "p", table="late_records").to_pylist()
    kept = {
        row["record"]["seq"] // 12: "".join(name for name, value in row["record"]["st"].items() if value is not None)
        for row in late
    }
    assert kept == {0: "xy", 1: "x", 2: "xy", 3: "xz", 4: "xyz"}
