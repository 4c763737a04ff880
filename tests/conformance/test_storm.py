"""Every recorded case of the real Apache Storm 2.8.4, windows and acker, played through the public pieces."""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from windowlib.errors import SpecError
from windowlib.testkit.conformance import play

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FILES = sorted((HERE / "storm").glob("*.jsonl"))


def load_check() -> ModuleType:
    spec = importlib.util.spec_from_file_location("conformance_check", HERE / "check.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CHECK = load_check()


def cases() -> "Iterator[Any]":
    for file in FILES:
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
            yield pytest.param(json.loads(line), id=f"{file.stem}:{number}")


@pytest.mark.parametrize("case", list(cases()))
def test_the_answer_is_that_of_storm(case: Mapping[str, Any]) -> None:
    answer = json.loads(json.dumps(play(case["script"])))
    assert CHECK.normal(case["script"], answer) == CHECK.normal(case["script"], case["expect"])


def test_the_command_answers_every_script_in_order() -> None:
    check, ours = [sys.executable, str(HERE / "check.py")], [sys.executable, "-m", "windowlib.testkit.conformance"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*check, *map(str, FILES), "--", *ours], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    count = sum(len(file.read_text(encoding="utf-8").splitlines()) for file in FILES)
    assert done.stdout.splitlines()[-1] == f"{count} passed, 0 failed", done.stdout[-3000:]
    assert done.returncode == 0


SCRIPT: dict[str, Any] = {
    "window": {
        "length": {"ms": 20},
        "slide": {"ms": 10},
        "event_time": True,
        "streams": ["s"],
        "late": True,
        "events": [["e", "a", 3, "s"], ["e", "b", 14, "s"], ["e", "c", 25, "s"], ["tick"], ["e", "d", 4, "s"]],
    }
}


def test_the_comparison_sees_a_wrong_answer() -> None:
    """The harness is tested too: a changed window, a lost one, another order, a list or a watermark that is wrong."""
    right = play(SCRIPT)
    assert [window["ref"] for window in right["windows"]] == [10, 20]
    assert (right["late"], right["watermarks"]) == (["d"], [25])
    first, second = right["windows"]
    for wrong in (
        {**right, "windows": [first]},
        {**right, "windows": [second, first]},
        {**right, "windows": [first, {**second, "events": ["b", "a"]}]},
        {**right, "windows": [first, {**second, "new": ["a", "b"]}]},
        {**right, "windows": [first, {**second, "expired": ["a"]}]},
        {**right, "late": []},
        {**right, "watermarks": [24]},
    ):
        assert CHECK.normal(SCRIPT, wrong) != CHECK.normal(SCRIPT, right)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"events": [["boom"]]}, r"unknown event \['boom'\]"),
        ({"length": {"weeks": 2}}, "a length is"),
        ({"slide": {"ms": 0}}, "must be positive, got 0"),
    ],
    ids=["event", "length", "slide"],
)
def test_a_script_that_is_none_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        play({"window": {**SCRIPT["window"], **change}})
