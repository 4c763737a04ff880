"""Text from outside is safe to print: no control character acts or breaks the line, and readable text stays."""

import json
import logging
import unicodedata

import pytest
from hypothesis import given, strategies as st

from jobs.plain_text import (
    EscapingFormatter,
    agreeing,
    counted,
    escaped,
    escaped_json,
    escaped_lines,
    first_of,
    shortened,
)

ANY_TEXT = st.text(st.characters(), max_size=40)  # surrogates too
ACTS = {"Cc", "Cs", "Zl", "Zp"}


@given(ANY_TEXT)
def test_control_and_direction_characters_are_escaped(text: str) -> None:
    shown = escaped(text)
    assert not {unicodedata.category(one) for one in shown} & ACTS
    assert not {unicodedata.bidirectional(one) for one in shown} & {
        "LRE",
        "RLE",
        "PDF",
        "LRO",
        "RLO",
        "LRI",
        "RLI",
        "PDI",
    }
    assert len(shown.splitlines()) <= 1
    shown.encode()
    assert escaped(shown) == shown
    assert escaped_lines(text).count("\n") == text.count("\n")


def test_readable_text_is_not_changed() -> None:
    for text in ("plain", "[bold]", "a\\b", "'\"`$", "é 漢字 🛫✈️👩🏽‍✈️", "עברית"):
        assert escaped(text) == text
    assert escaped("a\x1b[2J\n\t\x9b\u202e\ud800") == r"a\x1b[2J\n\t\x9b\u202e\ud800"


@given(st.recursive(st.none() | st.integers() | ANY_TEXT, lambda one: st.lists(one) | st.dictionaries(ANY_TEXT, one)))
def test_escaped_json_is_the_same_value(value: object) -> None:
    text = escaped_json(value)
    assert json.loads(text) == value
    assert escaped(text) == text


@given(ANY_TEXT, st.integers(1, 50))
def test_only_a_longer_text_is_cut(text: str, most: int) -> None:
    cut = shortened(text, most)
    assert cut == text if len(text) <= most else (cut[:-1] == text[:most] and cut[-1] == "…")


def test_a_log_record_is_one_line_and_a_traceback_keeps_its_lines() -> None:
    formatter = EscapingFormatter("%(levelname)s %(message)s")
    record = logging.LogRecord("x", logging.INFO, "f", 1, "held: %s", ("a\nERROR forged\x1b[2J",), None)
    assert formatter.format(record) == r"INFO held: a\nERROR forged\x1b[2J"
    error = ValueError("two\nlines\x1b[2J")
    record.exc_info = (type(error), error, None)
    lines = formatter.format(record).splitlines()
    assert lines == [r"INFO held: a\nERROR forged\x1b[2J", "ValueError: two", r"lines\x1b[2J"]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 slices have changed, 0 differ"),
        (1, "1 slice has changed, 1 differs"),
        (2, "2 slices have changed, 2 differ"),
    ],
)
def test_a_noun_and_its_verb_agree_with_a_number(number: int, text: str) -> None:
    assert f"{counted(number, 'slice', 'have')} changed, {number} {agreeing(number, 'differ')}" == text


def test_the_first_items_are_told_and_the_others_counted() -> None:
    """Defect: the failed checks of each of 9,000 slices were told for a message of five, which took 0.7 s."""
    told = list[int]()

    def tell(number: int) -> str:
        told.append(number)
        return f"n{number}"

    assert first_of([1, 2, 3], 3, told=tell) == "n1, n2, n3"
    assert first_of(range(9_000), 2, told=tell, separator="; ") == "n0; n1; and 8,998 more"
    assert told == [1, 2, 3, 0, 1]
    assert (first_of([], 2), first_of(["a", "b", "c"], 2)) == ("", "a, b and 1 more")
