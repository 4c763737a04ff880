"""A page compares two views if that is cheap or asked for, and once."""

from concurrent.futures import ThreadPoolExecutor
from random import Random
from threading import Event

import pytest

from jobs.comparing.compare import Comparison, compare
from jobs.comparing.differences import Differences
from jobs.comparing.views import Sides, version_sides
from jobs.lake.lake import Lake
from jobs.review.compared import CHEAP_ROWS, side_by_side
from jobs.review.pages import compare_page
from jobs.review.pages.compare_page import Comparisons
from tests.jobs.review.pages.conftest import Made


def test_an_expensive_comparison_is_made_only_when_asked(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    work, _ = made(Random(3))
    sides = version_sides(work.ledger.view(), 0)
    comparisons = Comparisons(most=1)
    monkeypatch.setattr(compare_page, "CHEAP_ROWS", 0)
    before = comparisons.compared(work.lake, "sales", sides, is_asked=False)
    assert before.found is None
    assert before.rows > 0
    asked = comparisons.compared(work.lake, "sales", sides, is_asked=True)
    assert asked.found is not None
    assert not asked.found.is_equal
    assert comparisons.compared(work.lake, "sales", sides, is_asked=False).found is asked.found


def test_a_cheap_comparison_does_not_wait_for_a_large_one(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    work, _ = made(Random(4))
    view = work.ledger.view()
    cheap, large = version_sides(view, 0), version_sides(view, view.version)
    comparisons, begun, may_end = Comparisons(), Event(), Event()

    def slow(lake: Lake, pipeline: str, sides: Sides, *, options: Comparison) -> Differences:
        if sides is large:
            begun.set()
            assert may_end.wait(60)
        return compare(lake, pipeline, sides, options=options)

    monkeypatch.setattr(compare_page, "compare", slow)
    monkeypatch.setattr(compare_page, "rows_to_read", lambda sides: CHEAP_ROWS + (sides is large))
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(comparisons.compared, work.lake, "sales", large, is_asked=True)
        assert begun.wait(60)
        beside = pool.submit(comparisons.compared, work.lake, "sales", cheap, is_asked=False)
        try:
            assert beside.result(timeout=30).found is not None
        finally:
            may_end.set()
        assert waiting.result().found is not None


def test_a_cheap_comparison_is_made_at_once_and_shows_rows_without_circumstances(made: Made) -> None:
    work, _ = made(Random(4))
    found = Comparisons().compared(work.lake, "sales", version_sides(work.ledger.view(), 0), is_asked=False).found
    assert found is not None
    samples = found.tables[0].samples
    assert samples
    for values in map(side_by_side, samples):
        names = [name for name, _, _ in values]
        assert "total" in names
        assert "watermark_ms" not in names
        assert all(old is None and new is not None for _, old, new in values)
