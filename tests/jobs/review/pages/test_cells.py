"""Texts of stored values."""

import csv
import io
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from jobs.review.pages.cells import cell, csv_line


@pytest.mark.parametrize(
    ("value", "column", "text"),
    [
        (None, "a", "null"), (True, "a", "yes"), (1234567, "a", "1,234,567"), (5_400_000, "late_by_ms", "1.5 h"),
        (0, "event_time_ms", "1970-01-01 00:00 UTC"), (2**62, "event_time_ms", f"{2**62:,} ms"), (0.1, "a", "0.1"),
        (250, "latency_ms", "250 ms"), (1_700_000_000_123, "sent_ms", "2023-11-14 22:13:20.123 UTC"),
        (Decimal("-12345.60"), "a", "-12,345.60"), (Decimal("0E-18"), "a", "0.000000000000000000"),
        (float("nan"), "a", "nan"), (float("-inf"), "a", "-inf"), ("x", "a", "x"),
        (date(2024, 1, 2), "a", "2024-01-02"),
        (datetime(2024, 1, 2, 3, tzinfo=UTC), "a", "2024-01-02 03:00"), ([1, None], "a", "[1, null]"),
        (datetime(2024, 1, 2, 3, 4, 5, 600, tzinfo=UTC), "a", "2024-01-02 03:04:05.0006"), (b"\x01", "a", '"01"'),
    ],
)  # fmt: skip
def test_a_value_is_shown_in_its_unit(value: object, column: str, text: str) -> None:
    assert cell(value, column) == text


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@a", "\t=1", "\r=1", '=HYPERLINK("http://x")'])
def test_a_text_in_a_csv_file_is_never_a_formula(text: str) -> None:
    (row,) = csv.reader(io.StringIO(csv_line([text, -1, None, 1.5, Decimal("-12.50")])))
    assert row[0][0] not in "=+-@\t\r"
    assert row[1:] == ["-1", "", "1.5", "-12.50"]
