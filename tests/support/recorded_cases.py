"""The recorded answers of the real engines, and the checker that compares answers with them."""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

from tests.support.places import ROOT

CONFORMANCE: Final = ROOT / "tests" / "conformance"
CHECK_PATH: Final = CONFORMANCE / "check.py"


def _load_checker() -> ModuleType:
    # check.py is a command that users run; it is not importable as a module of a package.
    spec = importlib.util.spec_from_file_location("conformance_check", CHECK_PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CHECKER: Final = _load_checker()


def case_files(engine: str) -> list[Path]:
    """Return the files of an engine's recorded cases: `flink` or `storm`."""
    return sorted((CONFORMANCE / engine).glob("*.jsonl"))


def case_parameters(files: Sequence[Path]) -> "Iterator[Any]":
    """Yield one pytest parameter for each recorded case; its id is the file's name and the line number."""
    for file in files:
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
            yield pytest.param(json.loads(line), id=f"{file.stem}:{number}")


def assert_command_passes(files: Sequence[Path]) -> None:
    """Play all cases of `files` through the checker and this project's command, and require that all pass."""
    command = [sys.executable, str(CHECK_PATH), *map(str, files), "--"]
    done = subprocess.run(
        [*command, sys.executable, "-m", "tests.conformance.play"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    count = sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)
    assert done.stdout.splitlines()[-1] == f"{count} passed, 0 failed", done.stdout[-3000:]
    assert done.returncode == 0
