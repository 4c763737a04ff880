"""Paths in a lake: made of checked names, so that nothing climbs out."""

from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from deltalake import DeltaTable

from jobs.delta_log import describe_log
from jobs.event_log import pin_log
from jobs.lake import Lake
from jobs.log_rows import find_record
from jobs.slices import slices_between
from jobs.store import dataset_of
from tests.support.fake_replay import PIPELINE, append_day, day_ms, sales
from windowlib.errors import SpecError


def test_paths_and_uris() -> None:
    assert Lake(root="/lake").table("flights", "window_outputs") == "/lake/flights/window_outputs"
    assert Lake(root="s3://bucket/lake/").ledger("flights") == "s3://bucket/lake/flights/ledger"
    assert Lake(root="/lake").event_log(sales()) == "/lake/event_logs/sales"
    for own in ("/elsewhere/sales", "s3://other/sales"):
        assert Lake(root="/lake").event_log(sales(PIPELINE.replace("event_logs/sales", own))) == own


@pytest.mark.parametrize("name", ["..", "../x", "a/b", "", "A", "a b", "a\n", "é", "-x", "x" * 200, "%2e%2e", "a\0"])
def test_hostile_names(name: str) -> None:
    with pytest.raises(SpecError, match="is no name"):
        Lake(root="/lake").table(name, "window_outputs")
    with pytest.raises(SpecError, match="is no name"):
        Lake(root="/lake").table("flights", name)


@pytest.mark.parametrize("marker", ["../x", "a/../../x", "/etc/passwd", "s3://x/y"])
def test_markers_stay_below(marker: str) -> None:
    with pytest.raises(SpecError, match="below the lake"):
        Lake(root="/lake").below(marker)


@pytest.mark.parametrize("root", ["", "  ", "a\0b"])
def test_a_root_that_is_none(root: str) -> None:
    with pytest.raises(SpecError, match="lake root"):
        Lake(root=root)


ODD = ("a b", "a#b", "a%b", "a%zzb", "ä", "a'b", "a&b;c", "a?b", "a:b", "a{b}", "a+b", "a,b", "a=b", "a~b")
UNREADABLE = ("a[b]", "a]b", "a%20b", "a%5Bb", "a\\b", "a^b", "a|b", "a\tb", "a\nb")


@pytest.mark.parametrize("name", ODD)
def test_a_lake_may_have_odd_names(tmp_path: Path, name: str) -> None:
    """Where `Lake` says nothing, tables are written, pinned and read."""
    append_day(tmp_path / name, "2024-01-01", {"a": 1})
    lake = Lake(root=str(tmp_path / name))
    day = slices_between(sales(), day_ms("2024-01-01"), day_ms("2024-01-02"))
    pinned = pin_log(lake.event_log(sales()), slice_column="day", zone=ZoneInfo("UTC"), slices=day)
    assert pinned.coordinates("2024-01-01").records == 1
    assert dataset_of(DeltaTable(lake.event_log(sales()))).to_table().num_rows == 1
    assert find_record(describe_log(lake.event_log(sales())), "id", "2024-01-01/a/1") is not None


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_path_that_delta_cannot_read_is_refused_in_one_paragraph(tmp_path: Path, name: str) -> None:
    """Left alone, deltalake panics at some of them and reads another directory at the others."""
    with pytest.raises(SpecError, match="no Delta table can be read there") as refused:
        Lake(root=str(tmp_path / name))
    assert "\n" not in str(refused.value)
    table = str(tmp_path / name).replace("\n", " ").replace("\t", " ")
    if table == str(tmp_path / name):
        pipeline = sales(PIPELINE.replace("event_logs/sales", f"'{table}'"))
        with pytest.raises(SpecError, match=r"log\.table of pipeline sales"):
            Lake(root=str(tmp_path)).event_log(pipeline)
