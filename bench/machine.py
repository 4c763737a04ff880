"""The machine, the versions and the commit of a run of the benches, and whether the machine is idle enough."""

import os
import platform
import subprocess
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import psutil

from jobs.spark.java import JavaNotFound, find_java
from jobs.wall_clock import now_ms
from tests.support.places import ROOT

PACKAGES: Final = (
    "pyspark",
    "delta-spark",
    "deltalake",
    "duckdb",
    "polars",
    "pyarrow",
    "numpy",
    "numba",
    "great-expectations",
)
LOAD_PER_CORE: Final = 1.3
"""A load average above this number for each core means that other programs run."""
BUSY_SHARE: Final = 0.3
"""The share of the cores that other programs may use between two rounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Where and when the benches ran."""

    cpu: str
    cores: int
    memory_gb: float
    system: str
    python: str
    java: str
    commit: str
    date: str
    versions: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """Return the machine as plain data."""
        return asdict(self)


def this_machine() -> Machine:
    """Describe the machine that runs this process."""
    return Machine(
        cpu=_cpu_name(),
        cores=cores(),
        memory_gb=round(psutil.virtual_memory().total / 2**30, 1),
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        java=_java_version(),
        commit=_commit(),
        date=datetime.fromtimestamp(now_ms() / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC"),
        versions={name: _version(name) for name in PACKAGES},
    )


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def busy_cores(seconds: float) -> float:
    """Return how many cores all processes of the machine used on average during the next `seconds`."""
    before = machine_cpu_s()
    time.sleep(seconds)
    return (machine_cpu_s() - before) / seconds


def machine_cpu_s() -> float:
    """Return the CPU seconds that all processes of the machine have used since it started."""
    spent = psutil.cpu_times()
    return float(spent.user + spent.nice + spent.system)


def why_loaded(load: float | None, busy: float, *, cores: int) -> str | None:
    """Return why the machine is not idle enough for a round, or None.

    Args:
        load: the load average of the last minute before the first round; None later, when it contains the benches.
        busy: the cores in use while no contestant runs.
        cores: the cores of the machine.
    """
    if load is not None and load > LOAD_PER_CORE * cores:
        return f"the load of the last minute was {load:.1f} on {cores} cores"
    if busy > BUSY_SHARE * cores:
        return f"other processes used {busy:.1f} of {cores} cores"
    return None


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _java_version() -> str:
    try:
        java = find_java() / "bin" / "java"
    except JavaNotFound:
        return "none"
    found = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    return found.stderr.splitlines()[0] if found.stderr else "unknown"


def _commit() -> str:
    git = ["git", "-C", str(ROOT)]
    head = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False)
    others = ["--", ".", ":!docs/explanation/benchmarks.md", ":!docs/benchmarks"]  # a run writes these two itself
    changed = subprocess.run([*git, "status", "--porcelain", *others], capture_output=True, text=True, check=False)
    return head.stdout.strip() + (" with changes" if changed.stdout.strip() else "")


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
