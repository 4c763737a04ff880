"""Flink as a contestant. It takes part if its jars are in the cache and the machine has a Java compiler."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.bench.contestant import CannotTakePart, Job
from tests.bench.samples import Checksum


class Flink:
    """The DataStream API in a local cluster."""

    def prepare(self, job: Job) -> None:
        jars = Path(job.options["cache"]) / "flink" / "pyflink" / "lib"
        if not jars.is_dir():
            raise CannotTakePart("Its jars are not in the cache of the benches (`make bench-flink` fetches them).")
        raise CannotTakePart("There is no program for it yet.")

    def run(self) -> None:
        raise NotImplementedError

    def check(self) -> Checksum:
        raise NotImplementedError

    def notes(self) -> Mapping[str, Any]:
        return {}
