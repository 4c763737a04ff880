"""How numbers and shares of a comparison are shown to people."""

import pytest

from jobs.comparing.differences import Change, Sample, number, percent
from jobs.review.compared import side_by_side


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (None, "-"), (0.0, "0 %"), (0.01234, "1.23 %"), (3.333, "333 %"), (9.994, "999 %"), (9.996, "1,000 %"),
        (10.0, "1,000 %"), (1234.567, "123,457 %"), (float("inf"), "inf %"),
    ],
)  # fmt: skip
def test_a_share_has_no_exponent_from_a_thousand_percent_on(share: float | None, text: str) -> None:
    assert percent(share) == text


def test_numbers_have_separators() -> None:
    shown = {
        None: "-",
        1_234_567: "1,234,567",
        1_234.5: "1,234.5",
        2**64 - 2: "18,446,744,073,709,551,614",
        1_234_567.8: "1,234,568",
        1e20: "1e+20",
    }
    assert [number(value) for value in shown] == [*shown.values()]


def test_values_side_by_side_have_all_digits() -> None:
    sample = Sample(change=Change.CHANGED, match={}, before={"x": 1234567.8}, after={"x": 1234567.9}, differs=("x",))
    assert side_by_side(sample) == [("x", "1,234,567.8", "1,234,567.9")]
