"""A new worker of Spark imports what its tasks run. What only the driver needs would cost it a quarter of a second."""

import subprocess
import sys

from tests.support.places import ROOT

HEAVY = {"pandas", "deltalake", "duckdb", "sqlglot", "yaml", "great_expectations", "numba", "pyspark"}
PROGRAM = """
import sys
import jobs.replay.stages.scan, jobs.replay.stages.windows
print(*sorted(name for name in sys.modules if name.partition(".")[0] in {heavy} or name.startswith("jobs.pipeline")))
"""


def test_scan_and_windows_tasks_import_neither_pipeline_files_nor_large_libraries() -> None:
    program = PROGRAM.replace("{heavy}", repr(HEAVY))
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
