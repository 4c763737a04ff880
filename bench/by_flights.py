"""The flights of 2013, as the pipelines of this repository replay them, with their checks."""

import shutil
from collections.abc import Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from bench.by_hindcast import WHOLE, run_days, session
from bench.cold import in_a_new_process
from bench.contestant import Contestant, Job
from bench.delta_logs import flights_for
from bench.samples import Checksum
from bench.stages import Stopwatch
from jobs.pipeline.files import build_pipeline
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.strict_yaml import read_yaml
from tests.support.places import ROOT

if TYPE_CHECKING:
    from jobs.orchestration.outcomes import RequestOutcome

FIRST: Final = date(2013, 1, 1)
WARM_UP_DAYS: Final = 3


def pipeline_over(name: str, log: str) -> Pipeline:
    """Return a pipeline of `pipelines/` that reads the log at another place."""
    path = ROOT / "pipelines" / f"{name}.yaml"
    document: Any = read_yaml(path)
    document["log"]["table"] = log
    return build_pipeline(document, source=str(path), functions_dir=path.parent)


def flight_days(first: int, last: int) -> tuple[str, str]:
    """Return the bounds of days of 2013, counted from the first, `last` not included."""
    return str(FIRST + timedelta(days=first)), str(FIRST + timedelta(days=last))


class _Flights:
    """What the contestants share: a session, the log, a lake, and a stopwatch."""

    def prepare(self, job: Job) -> None:
        self._job, self._spark = job, session(job)
        self._lake = Path(job.scratch) / "lake"
        self._log = flights_for(Path(job.options["cache"]), job.options["log_days"])
        self._watch = Stopwatch()
        self._outcome: RequestOutcome | None = None
        self._empty()
        self.begin()

    def begin(self) -> None:
        """Open the pipeline over the log."""
        self._pipeline = pipeline_over(self._job.options["pipeline"], self._log)

    def replay(self, first: int, last: int) -> None:
        """Run the days `[first, last)`."""
        bounds = flight_days(first, last)
        self._outcome, self._watch = run_days(self._spark, self._lake, self._pipeline, bounds)

    def check(self) -> Checksum:
        """Return the sums of the counts of all runs, and a number that is different if a digest is different."""
        outcome, self._outcome = self._outcome, None
        assert outcome is not None, "check follows run"
        counts = [run.result.counts for run in outcome.runs]
        digests = [int(digest[:12], 16) for run in outcome.runs for digest in run.result.digests.values() if digest]
        return Checksum(
            rows=sum(one.panes for one in counts),
            records=sum(one.read for one in counts),
            total=sum(one.late for one in counts),
            mix=sum(digests) % 2**64,
        )

    def notes(self) -> Mapping[str, Any]:
        return {"stages": self._watch.stages(WHOLE)}

    def _empty(self) -> None:
        shutil.rmtree(self._lake, ignore_errors=True)


class Days(_Flights):
    """The first `days` days as one request, from nothing. The session is warm: it has replayed three days before."""

    def begin(self) -> None:
        super().begin()
        self.replay(0, WARM_UP_DAYS)
        self._empty()

    def run(self) -> None:
        self.replay(0, self._job.options["days"])

    def check(self) -> Checksum:
        self._empty()
        return super().check()


class NextDay(_Flights):
    """One day after the days before it: restored from their checkpoint."""

    def begin(self) -> None:
        super().begin()
        self._day = 0
        for _ in range(WARM_UP_DAYS):
            self.run()

    def run(self) -> None:
        self.replay(self._day, self._day + 1)
        self._day += 1


class OldDay(_Flights):
    """A day in the middle of `days` replayed days: it got one more file, and the range is run again."""

    def begin(self) -> None:
        copied = Path(self._job.scratch) / "log"
        shutil.rmtree(copied, ignore_errors=True)
        shutil.copytree(self._log, copied)
        self._log = str(copied)
        super().begin()
        self._days = int(self._job.options["days"])
        self.replay(0, self._days)
        self._day = self._days // 2
        self._touch()

    def run(self) -> None:
        self.replay(0, self._days)

    def check(self) -> Checksum:
        found = super().check()
        self._day += 1
        self._touch()
        return found

    def _touch(self) -> None:
        """Append the day's first record to the day again, under another id."""
        table = DeltaTable(self._log)
        day = FIRST + timedelta(days=self._day)
        rows = table.to_pyarrow_table(filters=[("ingest_date", "=", day)]).slice(0, 1)
        place = rows.column_names.index("flight_id")
        rows = rows.set_column(
            place, rows.schema.field(place), pc.binary_join_element_wise(rows["flight_id"], "x", "-")
        )
        frame = self._spark.createDataFrame(_of_days(rows)).coalesce(1)
        frame.write.format("delta").mode("append").save(self._log)


class ColdStart(Contestant):
    """`hindcast run` of one day in a new process, with a new lake."""

    def prepare(self, job: Job) -> None:
        self._job = job
        self._lake = Path(job.scratch) / "lake"
        self._log = Path(flights_for(Path(job.options["cache"]), job.options["log_days"]))
        self._empty()

    def run(self) -> None:
        first, last = flight_days(0, 1)
        name = self._job.options["pipeline"]
        in_a_new_process("jobs.cli.main", "run", name, "--lake", str(self._lake), "--from", first, "--to", last)

    def check(self) -> Checksum:
        rows = DeltaTable(str(self._lake / self._job.options["pipeline"] / "window_outputs")).to_pyarrow_table(
            columns=["row_id"]
        )
        self._empty()
        ids = sum(rows["row_id"].to_pylist())
        return Checksum(rows=rows.num_rows, records=0, total=0, mix=ids % 2**64)

    def _empty(self) -> None:
        shutil.rmtree(self._lake, ignore_errors=True)
        (self._lake / "event_logs").mkdir(parents=True)
        (self._lake / "event_logs" / "flights").symlink_to(self._log)


def _of_days(rows: pa.Table) -> pa.Table:
    """Return rows whose days are DATEs, also where a partition column came as text."""
    place = rows.column_names.index("ingest_date")
    return rows.set_column(place, "ingest_date", pc.cast(rows["ingest_date"], pa.date32()))
