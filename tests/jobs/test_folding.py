"""Folding loses and moves no item, folds exactly the long runs, in linear time."""

from itertools import pairwise

from jobs.folding import fold, folded_line, span, spans
from jobs.plain_text import counted
from tests.support.fuzzing import chances
from tests.support.timing import growth


def test_folding_keeps_every_item_and_folds_the_longest_runs() -> None:
    for chance in chances(200):
        items = sorted(chance.sample(range(60), chance.randrange(40)))
        colour = {item: chance.randrange(3) for item in items}
        at_least = chance.randrange(7)
        has_gaps = chance.random() < 0.5

        def joined(one: int, other: int, *, colour: dict[int, int] = colour, gaps: bool = has_gaps) -> bool:
            return colour[one] == colour[other] and (not gaps or one + 1 == other)

        found = fold(
            items, colour.__getitem__, at_least=at_least, follows=(lambda a, b: a + 1 == b) if has_gaps else None
        )
        assert [item for stretch in found for item in stretch.items] == items
        for stretch in found:
            assert all(joined(one, other) for one, other in pairwise(stretch.items))
            assert not stretch.is_folded or len(stretch.items) >= at_least
            assert stretch.first == stretch.items[0]
        longest = _longest(items, joined)
        assert [len(one.items) for one in found] == [
            size for run in longest for size in ([run] if run >= max(at_least, 1) else [1] * run)
        ]


def _longest(items: list[int], joined: "object") -> list[int]:
    assert callable(joined)
    sizes: list[int] = []
    for before, item in zip([None, *items], items, strict=False):
        if before is not None and joined(before, item):
            sizes[-1] += 1
        else:
            sizes.append(1)
    return sizes


def test_lines_have_the_ends_and_the_number() -> None:
    days = [f"2013-01-{day:02d}" for day in range(1, 31)]
    assert span(days[:1]) == "2013-01-01"
    assert span(days) == "2013-01-01 … 2013-01-30: 30 slices"
    assert folded_line(days[:1], "current") == "2013-01-01: current"
    assert folded_line(days, "perhaps: x") == "2013-01-01 … 2013-01-30: 30 slices, perhaps: x"
    assert folded_line(["1"] * 1_234, "x", "run") == "1 … 1: 1,234 runs, x"
    assert [counted(count, "slice") for count in (0, 1, 1_000)] == ["0 slices", "1 slice", "1,000 slices"]
    assert spans([days[:1], days[3:5]]) == "2013-01-01, 2013-01-04 … 2013-01-05"
    assert spans([[day] for day in days], 2) == "2013-01-01, 2013-01-02 and 28 more"


def test_ten_thousand_slices_are_folded_in_linear_time() -> None:
    assert len(fold(range(10_000), lambda one: one // 5_000)) == 2
    assert len(fold(range(10_000), lambda one: one)) == 10_000
    assert growth(lambda count: fold(range(count), lambda one: one // 500), 1_000, 10_000) < 20
    assert growth(lambda count: fold(range(count), lambda one: one), 1_000, 10_000) < 20
