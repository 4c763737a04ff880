"""Every recorded case of the real Apache Flink 2.3.0, played through the public pieces in the flink profile."""

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

from windowlib.testkit.conformance import play

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FILES = sorted((HERE / "flink").glob("*.jsonl"))


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
            case = json.loads(line)
            yield pytest.param(case, id=f"{file.stem}:{number}")


@pytest.mark.parametrize("case", list(cases()))
def test_the_answer_is_that_of_flink(case: Mapping[str, Any]) -> None:
    answer = json.loads(json.dumps(play(case["script"])))
    assert CHECK.normal(case["script"], answer) == CHECK.normal(case["script"], case["expect"])


def test_the_command_answers_every_script_in_order() -> None:
    command = [
        sys.executable,
        str(HERE / "check.py"),
        *map(str, FILES),
        "--",
        sys.executable,
        "-m",
        "windowlib.testkit.conformance",
    ]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    count = sum(len(file.read_text(encoding="utf-8").splitlines()) for file in FILES)
    assert done.stdout.splitlines()[-1] == f"{count} passed, 0 failed", done.stdout[-3000:]
    assert done.returncode == 0


def test_the_comparison_sees_a_wrong_answer() -> None:
    """The harness is tested too: a changed payload, a lost pane and a swapped order do not pass."""
    script = {
        "assigner": {"type": "tumbling_event", "size": 10},
        "events": [["e", "a", 1, 1], ["e", "a", 2, 2], ["w", 9]],
    }
    right = play(script)
    assert CHECK.normal(script, right) == CHECK.normal(script, play(script))
    for wrong in (
        {**right, "out": [["o", "a", 0, 10, [2, 1], 9], ["w", 9]]},
        {**right, "out": [["w", 9]]},
        {**right, "out": [["w", 9], ["o", "a", 0, 10, [1, 2], 9]]},
        {**right, "dropped": 1},
        {**right, "event_timers": [[0, 10, 9]]},
    ):
        assert CHECK.normal(script, wrong) != CHECK.normal(script, right)
