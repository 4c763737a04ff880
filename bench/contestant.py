"""The protocol of contestants, what a contestant is asked to do, and where each of them is."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib import import_module
from typing import Any, Final, Protocol

from bench.samples import Checksum
from bench.workloads import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a contestant of a bench gets.

    `log` is the Delta log with the records, empty for a bench in memory. `scratch` is a directory of its own. `options`
    are the contestant's own (which pipeline, which number of days).
    """

    bench: str
    workload: Workload
    records: int
    seed: int
    cores: int
    log: str
    scratch: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> "Job":
        """Return the job that `to_json` described."""
        return cls(**{**plain, "workload": Workload.from_json(plain["workload"])})

    def to_json(self) -> dict[str, Any]:
        """Return the job as plain data."""
        return {**asdict(self), "workload": self.workload.to_json()}


class CannotTakePart(Exception):  # noqa: N818 - it says what happened
    """Raised by `Contestant.prepare`: something is not installed, or the job is too large. A sentence for the page."""


class Contestant(Protocol):
    """Computes the result of one job, any number of times. Only `run` is measured."""

    def prepare(self, job: Job) -> None:
        """Load the data or open the session, and warm up.

        Raises:
            CannotTakePart: the page shows why.
        """

    def run(self) -> None:
        """Compute the result once."""

    def check(self) -> Checksum:
        """Return the checksum of the last result, and forget the result."""

    def notes(self) -> Mapping[str, Any]:
        """Return what else the last run told: the executor that ran, seconds by stage."""
        return {}


PLACES: Final[Mapping[str, str]] = {
    "hindcast": "bench.by_hindcast:Replay",
    "intake": "bench.by_intake:Intake",
    "hindcast_columns": "bench.by_executor:Chosen",
    "operator": "bench.by_executor:ByRecord",
    "duckdb": "bench.by_duckdb:InMemory",
    "duckdb_files": "bench.by_duckdb:Files",
    "polars": "bench.by_polars:InMemory",
    "polars_files": "bench.by_polars:Files",
    "spark": "bench.by_spark:Native",
    "spark_streaming": "bench.by_spark:Streaming",
    "spark_scan": "bench.by_spark:SinglePartition",
    "hindcast_scan": "bench.by_hindcast:Scan",
    "flights": "bench.by_flights:Days",
    "next_day": "bench.by_flights:NextDay",
    "old_day": "bench.by_flights:OldDay",
    "cold_start": "bench.by_flights:ColdStart",
    "hindcast_cold": "bench.cold:Hindcast",
    "duckdb_cold": "bench.cold:DuckDB",
    "polars_cold": "bench.cold:Polars",
    "open_windows": "bench.by_hindcast:OpenWindows",
    "flink": "bench.by_flink:Flink",
    "bytewax": "bench.by_bytewax:Windows",
}
"""Name -> `module:class`. A module is imported in the contestant's own process only."""

TITLES: Final[Mapping[str, str]] = {
    "hindcast": "Hindcast",
    "intake": "Hindcast",
    "hindcast_columns": "Hindcast",
    "hindcast_scan": "Hindcast",
    "operator": "Hindcast's operator",
    "hindcast_cold": "Hindcast",
    "duckdb": "DuckDB",
    "duckdb_files": "DuckDB",
    "duckdb_cold": "DuckDB",
    "polars": "Polars",
    "polars_files": "Polars",
    "polars_cold": "Polars",
    "spark": "Spark SQL",
    "spark_streaming": "Spark Structured Streaming",
    "spark_scan": "Spark, a window in one partition",
    "flink": "Flink",
    "bytewax": "Bytewax",
}


def title_of(name: str) -> str:
    """Return the name of a contestant for people. A part after `@` is a variant."""
    plain, _, variant = name.partition("@")
    return f"{TITLES.get(plain, plain.replace('_', ' '))}{', ' + variant if variant else ''}"


def contestant(name: str) -> Contestant:
    """Return a contestant by its name.

    Raises:
        KeyError: there is no contestant with this name.
    """
    module, _, attribute = PLACES[name.partition("@")[0]].partition(":")
    made: Contestant = getattr(import_module(module), attribute)()
    return made
