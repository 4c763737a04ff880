"""The page of a window: the command that tells the same."""

import csv
import shlex

from jobs.review.pages.window_page import WindowAsk

VALUES = ("JFK", "", "a,b", 'a "b"', "a\nb", "a\rb", " a ", "-1", "'")


def test_the_command_names_the_key_so_that_its_values_are_read_again() -> None:
    for first in VALUES:
        for second in VALUES:
            words = shlex.split(WindowAsk(key={"k": first, "l": second}, start="2024-01-01").command("sales"))
            assert next(csv.reader([words[4]])) == [first, second]
        words = shlex.split(WindowAsk(key={"k": first}, start="2024-01-01").command("sales"))
        assert words == ["hindcast", "explain", "sales", "--window", first, "2024-01-01"]


def test_the_command_of_a_window_of_all_records_names_the_word_all() -> None:
    words = shlex.split(WindowAsk(key={}, start="a", end="b", request_id="c").command("sales"))
    assert words == ["hindcast", "explain", "sales", "--window", "all", "a", "--end", "b", "--request", "c"]
