"""How numbers and shares of a comparison are shown to people."""

import pytest

from jobs.comparing.differences import number, percent


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
    assert [number(value) for value in (None, 1_234_567, 1_234.5)] == ["-", "1,234,567", "1,234.5"]
