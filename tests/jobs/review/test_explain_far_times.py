"""`hindcast explain` of a log with TIMESTAMPs outside of the years 1 to 9999, which are no datetimes of Python."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from jobs.cli.main import hindcast
from jobs.cli.options import run_cli
from tests.support.replays import pipeline_of, run_range

FAR_US = 253_402_318_799_000_000
FAR = "10000-01-01T04:59:59Z"
TEXT = """
pipeline: expiry
log:
  table: log
  slice: {by: day, every: 1d}
  order: [place]
  record_id: id
  key: [k, until]
  event_time: at
watermark: {kind: bounded, out_of_orderness: 0ms}
windows: {tumbling: {size: 1h}}
aggregates: {n: {count: {}}, last: {max: expires}}
"""


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lake with two records of one window, a newer one, a late one, and one whose event time is far away."""
    monkeypatch.setenv("COLUMNS", "200")
    day = datetime(2026, 1, 1, tzinfo=UTC)
    instant = pa.timestamp("us", "UTC")
    times = [int(day.timestamp() * 1_000_000) + hour * 3_600_000_000 for hour in (5, 5, 9, 1)] + [FAR_US]
    log = {
        "id": ["first", "second", "newer", "late", "far"],
        "place": range(5),
        "k": ["a"] * 5,
        "until": pa.array([FAR_US] * 5, instant),
        "at": pa.array(times, instant),
        "expires": pa.array([FAR_US] * 5, instant),
        "day": pa.array([day] * 5, instant),
    }
    write_deltalake(str(tmp_path / "log"), pa.table(log))
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "expiry.yaml").write_text(TEXT)
    run_range(None, tmp_path, pipeline_of(TEXT), ("2026-01-01", "2026-01-02"))
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("second",), f"of k a, until {FAR}. 1 window fired"),
        (("late",), "is late"),
        (("far",), "is invalid: time_out_of_range"),
        (("--window", f"a,{FAR}", "2026-01-01T05:00"), f"Readers see n 2, last {FAR}"),
        (("first", "--json"), f'"expires": "{FAR}"'),
    ],
)
def test_each_record_and_window_is_explained(
    lake: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], expected: str
) -> None:
    places = ["--lake", str(lake), "--pipelines", str(lake / "pipelines")]
    status = run_cli(hindcast, ["explain", "expiry", *arguments, *places])
    out, err = capsys.readouterr()
    assert (err, status) == ("", 0)
    assert expected in out
