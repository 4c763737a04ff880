"""Strict YAML: documents that are plain data are read, all others are refused with line and column."""

import contextlib
import json
from pathlib import Path
from typing import ClassVar

import pytest
import yaml
from hypothesis import example, given, strategies as st

from jobs.pipeline.strict_yaml import MAX_BYTES, MAX_NODES, parse_yaml, read_yaml
from tests.support.fuzzing import chances
from windowlib.errors import SpecError

BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGES = "a: &a {k: 1}\n" + "".join(
    f"{name}: &{name} {{<<: [{', '.join([f'*{before}'] * 10)}]}}\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("a: 1\na: 2", "line 2, column 1: the key 'a' is given twice", id="duplicate key"),
        pytest.param("x: {a: 1, a: 2}", "the key 'a' is given twice", id="duplicate key inside"),
        pytest.param(BOMB, "expands to more than", id="billion laughs"),
        pytest.param(MERGES, "expands to more than", id="billion merges"),
        pytest.param("a: &a [*a]", "refers to a value that contains it", id="a list in itself"),
        pytest.param("[" * 100_000, "nested deeper than 32", id="deep flow"),
        pytest.param(
            "a: !!python/object/apply:os.system [id]",
            "line 1, column 4: the tag !!python/object/apply:os.system is not allowed",
            id="a python object",
        ),
        pytest.param("k:\n  a: !!set {x, y}", "line 2, column 6: the tag !!set is not allowed", id="a set"),
        pytest.param("a: !!omap [x: 1]", "the tag !!omap is not allowed", id="an ordered map"),
        pytest.param("a: !!pairs [x: 1]", "the tag !!pairs is not allowed", id="pairs"),
        pytest.param("a: !!binary eA==", "the tag !!binary is not allowed", id="bytes"),
        pytest.param("a: !!timestamp 2013-02-03", "the tag !!timestamp is not allowed", id="a date by its tag"),
        pytest.param("a: !mine x", "the tag !mine is not allowed", id="a tag of one's own"),
        pytest.param("a: !!map [x]", "the tag !!map is not allowed here", id="a list with the tag of a mapping"),
        pytest.param("a: !!str {b: 1}", "the tag !!str is not allowed here", id="a mapping with the tag of a text"),
        pytest.param("a: !!merge x", "the tag !!merge is not allowed", id="a text with the tag of a merge"),
        pytest.param(
            "a: !!bool maybe", "'maybe' does not have the type of its tag !!bool", id="a text with the tag of a bool"
        ),
        pytest.param("a: !!int ''", "'' does not have the type of its tag !!int", id="an empty int"),
        pytest.param('a: "\\ud800"', "line 1, column 4: the text '\\ud800' has a surrogate", id="half a character"),
        pytest.param('"\\udfff": 1', "has a surrogate", id="half a character in a key"),
        pytest.param(f"a: {'9' * 5_000}", "a number of 5,000 characters; at most 1,000", id="a long number"),
        pytest.param(
            f"a: 0x{'f' * 5_000}", "line 1, column 4: a number of 5,002 characters", id="a long number in hex"
        ),
        pytest.param("a: 0x_", "a value cannot be read", id="no number"),
        pytest.param("? [1, 2]\n: x", "a key must be a text", id="a list as key"),
        pytest.param("a: 1\n---\nb: 2", "expected a single document", id="two documents"),
        pytest.param("a: [1", "p.yaml, line", id="cut off"),
        pytest.param("a: \x00", "p.yaml", id="a control character"),
    ],
)
def test_other_documents_are_refused(text: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_yaml(text, source="p.yaml")
    assert message in str(caught.value)


@pytest.mark.parametrize("text", ["a: [" + "1," * 170_000 + "1]", "a: &a 1\nb: [" + "*a," * 110_000 + "1]"])
def test_a_document_with_too_many_values_is_refused_before_most_of_it_is_read(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = 0
    get_event = yaml.SafeLoader.get_event

    def counted(loader: yaml.SafeLoader) -> object:
        nonlocal events
        events += 1
        event: object = get_event(loader)  # type: ignore[no-untyped-call]
        return event

    monkeypatch.setattr(yaml.SafeLoader, "get_event", counted)
    with pytest.raises(SpecError, match="expands to more than 20,000 values"):
        parse_yaml(text, source="p.yaml")
    assert events <= MAX_NODES + 10


def test_aliases_with_a_small_expansion_are_accepted() -> None:
    assert parse_yaml("a: &x {k: 1}\nb: *x\nc: {<<: *x, m: 2}", source="p") == {
        "a": {"k": 1},
        "b": {"k": 1},
        "c": {"k": 1, "m": 2},
    }


def test_a_bare_date_is_a_text() -> None:
    text = "{a: 2013-02-08, b: 2013-02-08T05:15, c: =, d: 2013-02-30}"
    found = {"a": "2013-02-08", "b": "2013-02-08T05:15", "c": "=", "d": "2013-02-30"}
    assert parse_yaml(text, source="p") == found


PARTS = (
    "!!set ", "!!omap ", "!!binary ", "!!str ", "!!int ", "!x ", "", "", "", *"{}[],:ab1 ",
    "\n", "- ", "? ", "a: ", "2013-02-08 ", '"\\ud800"', ".nan", "<<: ",
)  # fmt: skip


def test_each_document_that_is_read_is_plain_data() -> None:
    """JSON can represent it, so it has no set or object whose order or text depends on the process."""
    read = 0
    for rng in chances(2_000):
        text = "".join(rng.choice(PARTS) for _ in range(rng.randrange(1, 25)))
        with contextlib.suppress(SpecError):
            found = parse_yaml(text, source="p.yaml")
            assert _types(found) <= {dict, list, str, int, float, bool, type(None)}, text
            json.dumps(found).encode()
            read += 1
    assert read > 100


def _types(value: object) -> set[type]:
    inside = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []
    return {type(value)}.union(*(_types(part) for part in inside))


def test_a_file_that_is_too_large_or_not_utf_8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text("a: " + "x" * MAX_BYTES)
    with pytest.raises(SpecError, match="at most 1,000,000"):
        read_yaml(path)
    path.write_bytes(b"a: \xff")
    with pytest.raises(SpecError, match="not UTF-8"):
        read_yaml(path)


class _WithoutDates(yaml.SafeLoader):
    """PyYAML's reader of plain data, for which a date without quotes is a text."""

    yaml_implicit_resolvers: ClassVar = {  # type: ignore[misc]  # PyYAML has it on the class
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


@given(st.text(alphabet="ab:&*{}[]<>-!? \n,'\"#|0123456789.~", max_size=60))
@example("0001-01-01")
@example("0000-00-00")
def test_any_text_is_data_or_a_spec_error(text: str) -> None:
    try:
        found = parse_yaml(text, source="p.yaml")
    except SpecError:
        return
    assert found == yaml.load(text, Loader=_WithoutDates)  # noqa: S506 - a SafeLoader
