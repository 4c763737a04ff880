"""Paths in a lake: made of checked names, so that nothing climbs out."""

import pytest

from jobs.lake import Lake
from tests.support.fake_replay import PIPELINE, sales
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
