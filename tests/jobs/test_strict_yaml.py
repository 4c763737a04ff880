"""YAML that tries to be more than data."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from jobs.strict_yaml import MAX_BYTES, parse_yaml, read_yaml
from windowlib.errors import SpecError

BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGES = "a: &a {k: 1}\n" + "".join(
    f"{name}: &{name} {{<<: [{', '.join([f'*{before}'] * 10)}]}}\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("a: 1\na: 2", "line 2, column 1: the key 'a' is given twice", id="duplicate key"),
        pytest.param("x: {a: 1, a: 2}", "the key 'a' is given twice", id="duplicate key inside"),
        pytest.param(BOMB, "expands to more than", id="billion laughs"),
        pytest.param(MERGES, "expands to more than", id="billion merges"),
        pytest.param("a: &a [*a]", "refers to what contains it", id="a list in itself"),
        pytest.param("[" * 100_000, "nested deeper than 32", id="deep flow"),
        pytest.param(
            "a: !!python/object/apply:os.system [id]", "could not determine a constructor", id="a python object"
        ),
        pytest.param("a: !!binary x", "p.yaml", id="bad base64"),
        pytest.param(f"a: {'9' * 5_000}", "a value cannot be read", id="a long number"),
        pytest.param("a: 2013-02-30", "a value cannot be read", id="a date that is none"),
        pytest.param("? [1, 2]\n: x", "a key must be a text", id="a list as key"),
        pytest.param("a: 1\n---\nb: 2", "expected a single document", id="two documents"),
        pytest.param("a: [1", "p.yaml, line", id="cut off"),
        pytest.param("a: \x00", "p.yaml", id="a control character"),
    ],
)
def test_refused_with_the_place(text: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_yaml(text, source="p.yaml")
    assert said in str(caught.value)


def test_aliases_that_stay_small_are_fine() -> None:
    assert parse_yaml("a: &x {k: 1}\nb: *x\nc: {<<: *x, m: 2}", source="p") == {
        "a": {"k": 1},
        "b": {"k": 1},
        "c": {"k": 1, "m": 2},
    }


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text("a: " + "x" * MAX_BYTES)
    with pytest.raises(SpecError, match="at most 1,000,000"):
        read_yaml(path)
    path.write_bytes(b"a: \xff")
    with pytest.raises(SpecError, match="not UTF-8"):
        read_yaml(path)


@given(st.text(alphabet="ab:&*{}[]<>-!? \n,'\"#|0123456789.~", max_size=60))
def test_any_text_is_data_or_a_spec_error(text: str) -> None:
    try:
        found = parse_yaml(text, source="p.yaml")
    except SpecError:
        return
    assert found == yaml.safe_load(text)
