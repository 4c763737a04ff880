"""A page compares two views if that is cheap or asked for, and once."""

from random import Random

import pytest

from jobs.comparing.views import version_sides
from jobs.review.compared import sample_lines
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


def test_a_cheap_comparison_is_made_at_once_and_shows_rows_without_circumstances(made: Made) -> None:
    work, _ = made(Random(4))
    found = Comparisons().compared(work.lake, "sales", version_sides(work.ledger.view(), 0), is_asked=False).found
    assert found is not None
    lines = sample_lines(found.tables[0])
    assert lines
    for line in lines:
        names = [name for name, _, _ in line.values]
        assert "total" in names
        assert "watermark_ms" not in names
        assert all(old is None and new is not None for _, old, new in line.values)
