"""A comparison of five million windows on each side: exact, in bounded memory. It runs in a process of its own."""

import json
import subprocess
import sys

import pytest

from tests.support.places import ROOT

WINDOWS = 5_000_000
SLICES = 5
MEMORY_MB = 1_500
"""The greatest resident memory of the process. It was 818 MB, and 762 MB for a fifth of the windows."""

PROGRAM = """
import json, resource, sys
from pathlib import Path
from tests.support.large_views import compared
found = compared(Path(sys.argv[1]), windows=int(sys.argv[2]), slices=int(sys.argv[3]))
print(json.dumps({**found, "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
"""


@pytest.mark.soak
def test_five_million_windows_are_compared_exactly_in_bounded_memory(tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("large")
    arguments = [str(root), str(WINDOWS), str(SLICES)]
    command = [sys.executable, "-c", PROGRAM, *arguments]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["found"] == found["expected"]
    assert found["memory_mb"] < MEMORY_MB, found
