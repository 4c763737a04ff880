"""Flink as a contestant, if its jars are in the cache (`make bench-flink`) and the machine has a Java compiler.

Flink runs in a local cluster inside one warm JVM, with heap state and without checkpoints. It reads and writes plain
binary files, which cost it less than a Delta log.
"""

import hashlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

import numpy as np
import pyarrow as pa

from bench.checksums import COLUMNS, checksum
from bench.contestant import CannotTakePart, Contestant, Job
from bench.samples import Checksum
from bench.workloads import Events, make_events
from jobs.spark.java import find_java

SOURCE: Final = Path(__file__).parent / "flink" / "Bench.java"
WARM_UP_RECORDS: Final = 20_000
OPENED: Final = ("java.lang", "java.net", "java.nio", "java.util", "java.util.concurrent", "java.time")
"""Packages of Java that Flink's serialisers reflect on."""


class Flink(Contestant):
    """The DataStream API: keyed windows with an aggregate function."""

    def prepare(self, job: Job) -> None:
        cache = Path(job.options["cache"]) / "flink"
        jars, compiler = cache / "pyflink" / "lib", shutil.which("javac")
        if not jars.is_dir():
            raise CannotTakePart("Its jars are not in the cache of the benches; `make bench-flink` fetches them.")
        if compiler is None:
            raise CannotTakePart("This machine has no Java compiler (javac).")
        self._job = job
        self._rows = Path(job.scratch) / "rows"
        program = compiled(compiler, jars, cache)
        self._java = started(jars, program, log=Path(job.scratch) / "flink.log")
        few = make_events(job.workload, min(job.records, WARM_UP_RECORDS), seed=job.seed)
        self._ask(written(few, Path(job.scratch) / "few"))
        self._input = written(make_events(job.workload, job.records, seed=job.seed), Path(job.scratch) / "records")

    def run(self) -> None:
        self._ask(self._input)

    def check(self) -> Checksum:
        return checksum(self._found())

    def _ask(self, records: Path) -> None:
        one = self._job.workload
        asked = (one.kind, one.size, one.slide, one.gap_ms, one.bound_ms, self._job.cores, records, self._rows)
        told, heard = _pipe(self._java.stdin), _pipe(self._java.stdout)
        told.write(" ".join(map(str, asked)) + "\n")
        told.flush()
        if heard.readline().strip() != "done":
            raise RuntimeError(f"Flink ended with status {self._java.poll()}; see {self._job.scratch}/flink.log")

    def _found(self) -> Iterator[pa.Table]:
        for place in sorted(self._rows.parent.glob(f"{self._rows.name}.*")):
            rows = np.fromfile(place, dtype=">i8").astype(np.int64).reshape(-1, len(COLUMNS))
            yield pa.table({name: np.ascontiguousarray(rows[:, number]) for number, name in enumerate(COLUMNS)})
            place.unlink()


def compiled(compiler: str, jars: Path, cache: Path) -> Path:
    """Return the directory with the compiled program; compile it if the source is new."""
    place = cache / f"classes-{hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]}"
    if not place.is_dir():
        half = place.with_name(place.name + ".half")
        command = [compiler, "-nowarn", "-d", str(half), "-cp", f"{jars}/*", str(SOURCE)]
        subprocess.run(command, check=True, capture_output=True, timeout=600)
        half.rename(place)
    return place


def started(jars: Path, program: Path, *, log: Path) -> "subprocess.Popen[str]":
    """Start the JVM. It answers each line of its standard input."""
    opened = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in OPENED]
    command = [str(find_java() / "bin" / "java"), "-Xmx4g", *opened, "-cp", f"{program}:{jars}/*", "Bench"]
    with log.open("w", encoding="utf-8") as errors:
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)


def written(events: Events, place: Path) -> Path:
    """Write key, time and value of each record as big-endian longs, and return the place."""
    np.stack([events.key, events.at_ms, events.value], axis=1).astype(">i8").tofile(place)
    return place


def _pipe(found: IO[str] | None) -> IO[str]:
    assert found is not None, "the process was started with pipes"
    return found
