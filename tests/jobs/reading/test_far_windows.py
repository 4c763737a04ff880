"""Windows whose bounds are outside of the years 1 to 9999: each reader shows them, as ISO texts."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from jobs.cli.main import hindcast
from jobs.cli.options import run_cli
from jobs.reading.plain_values import rows_of
from tests.support.replays import pipeline_of, run_range

MS_OF_9999, MS_OF_YEAR_1 = 253_402_214_400_000, -62_135_596_800_000
TEXT = """
pipeline: far
log:
  table: log
  slice: {by: day, every: 1d}
  order: [id]
  record_id: id
  key: [k]
  event_time: {column: at, unit: ms}
  arrival_time: {column: day}
watermark: {kind: bounded, out_of_orderness: 0ms}
windows: {sliding: {size: 2d, slide: 1d}, trigger: {count: 1}, leftovers: report}
aggregates: {n: {count: {}}}
"""


def test_instants_outside_of_a_datetimes_years_are_texts() -> None:
    instants = pa.array([MS_OF_9999 + 86_400_000, MS_OF_YEAR_1 - 1_000, 0, None], pa.timestamp("ms", "UTC"))
    nested = pa.array([[{"at": MS_OF_YEAR_1 - 1_000}], [], None, [None]], pa.list_(pa.struct({"at": instants.type})))
    table = pa.table({"at": instants, "all": nested, "n": pa.array([1, 2, 3, 4])})
    texts = ["10000-01-01T00:00:00Z", "0000-12-31T23:59:59Z"]
    assert rows_of(table) == [
        {"at": texts[0], "all": [{"at": texts[1]}], "n": 1},
        {"at": texts[1], "all": [], "n": 2},
        {"at": datetime(1970, 1, 1, tzinfo=UTC), "all": None, "n": 3},
        {"at": None, "all": [None], "n": 4},
    ]


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lake with a record of the year 9999, whose windows fired, and then a late record of the year 1."""
    monkeypatch.setenv("COLUMNS", "200")
    day = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [{"id": number, "k": "a", "at": at, "day": day} for number, at in enumerate((0, MS_OF_9999, MS_OF_YEAR_1))]
    kinds = {"id": pa.int64(), "k": pa.string(), "at": pa.int64(), "day": pa.timestamp("us", "UTC")}
    write_deltalake(str(tmp_path / "log"), pa.Table.from_pylist(rows, pa.schema(kinds)))
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "far.yaml").write_text(TEXT)
    run_range(None, tmp_path, pipeline_of(TEXT), ("2026-01-01", "2026-01-02"))
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("show", "far"), "9999-12-31 00:00 - 10000-01-02T00:00:00Z"),
        (("show", "far", "--json"), '"window_end": "10000-01-02T00:00:00Z"'),
        (("changes", "far", "--since", "0", "--json"), '"window_start": "9999-12-31T00:00:00Z"'),
        (("explain", "far", "1"), "[9999-12-31 00:00, 10000-01-02 00:00)"),
        (("explain", "far", "2"), "[0000-12-31 00:00, 0001-01-02 00:00)"),
        (("explain", "far", "--window", "a", "9999-12-31"), "outside the years 1 to 9999"),
    ],
)
def test_each_command_shows_them(
    lake: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], expected: str
) -> None:
    status = run_cli(hindcast, [*arguments, "--lake", str(lake), "--pipelines", str(lake / "pipelines")])
    out, err = capsys.readouterr()
    assert (err, status) == ("", 0)
    assert expected in out


def test_late_records_are_exported_with_them(lake: Path) -> None:
    target = lake / "late.csv"
    places = ["--lake", str(lake), "--pipelines", str(lake / "pipelines")]
    assert (
        run_cli(hindcast, ["export", "far", "--table", "late_records", "--format", "csv", "--to", str(target), *places])
        == 0
    )
    assert "0000-12-31" in target.read_text()
