"""Replays an entry of the zoo, and tells what came out in a form that is equal on every machine."""

import hashlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs.lake.lake import Lake
from jobs.lake.store import read_attempts
from jobs.orchestration.requests import Staging, run_request
from jobs.pipeline.slices import parse_bound
from jobs.planning.request_context import Asked, open_request_context
from jobs.publishing.accepting import accept_rewrites, rewrites_of
from jobs.replay.replayer import replay_chunk
from jobs.replay.sizes import Sizes
from jobs.runs import OPTIONAL_FATES
from jobs.spark.lazy_session import LazySession
from tests.support.replays import NOW_MS
from tests.support.spark_session import SparkSession
from tests.zoo.entries import Entry, Place
from windowlib.errors import HindcastError
from windowlib.records import tables

if TYPE_CHECKING:
    from collections.abc import Callable

Answer = dict[str, Any]
IN_PROCESS = Sizes(local_records=10**9)
"""With these sizes, tasks that read files run in this process, also for hundreds of slices."""
FEW = 50
"""So many runs have one digest in a short answer."""
_KEPT = (
    "slice_id", "run_id", "spec_fingerprint", "input_fingerprint", "state_before", "state", "counts", "watermark_ms",
    "digests",
)  # fmt: skip
TABLES = (
    tables.WINDOW_OUTPUTS, tables.LATE_RECORDS, tables.UNASSIGNED_RECORDS, tables.INVALID_RECORDS, tables.WINDOW_STATE,
    tables.TIMERS, tables.WATERMARKS,
)  # fmt: skip


class Refused(Exception):  # noqa: N818 - an expected answer of an entry, no error of a test
    """The log or the pipeline of an entry was refused. The message is that of the error."""


@dataclass(slots=True)
class Zoo:
    """Builds tables below `root`, each once, and replays entries over them."""

    root: Path
    spark: "Callable[[], SparkSession]"
    _built: dict[str, Path] = field(default_factory=dict)

    def table(self, entry: Entry) -> Path:
        """Return the directory of the entry's table. The first call writes it."""
        if entry.table not in self._built:
            path = self.root / "tables" / entry.table / "log"
            path.parent.mkdir(parents=True)
            entry.build(Place(path, self.root / "bases", self.spark))
            self._built[entry.table] = path
        return self._built[entry.table]

    def replay(self, entry: Entry, *, sizes: Sizes = IN_PROCESS) -> Answer:
        """Replay an entry as `hindcast run` does, in a lake of its own.

        Raises:
            Refused: the log or the pipeline was refused.
        """
        try:
            table = self.table(entry)
            with tempfile.TemporaryDirectory(dir=self.root) as lake:
                (Path(lake) / "log").symlink_to(table)
                return self._replayed(entry, Path(lake), sizes)
        except HindcastError as error:
            raise Refused(str(error)) from error

    def _replayed(self, entry: Entry, root: Path, sizes: Sizes) -> Answer:
        pipeline, lake = entry.pipeline(), Lake(root=str(root))
        start_ms, end_ms = (parse_bound(pipeline, text) for text in entry.bounds)
        session = LazySession(lambda _records, _places: self.spark().sparkContext, is_local=True)
        work = open_request_context(pipeline, lake, now_ms=lambda: NOW_MS)
        if entry.is_accepted:
            found = rewrites_of(work, work.ledger.view())
            accept_rewrites(work, found, found.rewrites, reason="by law", who="a test")
        outcome = run_request(
            work,
            Asked(from_ms=start_ms, to_ms=end_ms, who="a test", reason="the zoo"),
            lambda order: replay_chunk(session, order, sizes=sizes),
            staging=Staging(),
        )
        if not outcome.is_published:
            raise AssertionError(f"{entry.name}: not published: {outcome.publication}")
        attempts = [(run.result.slice.slice_id, run.result.attempt_id) for run in outcome.runs]
        runs = [_kept(run) for run in outcome.to_json()["runs"]]
        if entry.is_short:
            return _shortened(runs)
        named = (*TABLES, *((tables.DUPLICATE_RECORDS,) if pipeline.log.distinct is not None else ()))
        return {"runs": runs, "rows": {name: _rows(lake, pipeline.name, name, attempts) for name in named}}


def _kept(run: Mapping[str, Any]) -> Answer:
    """Return what an answer has of a run. Answers are older than the counts of `OPTIONAL_FATES`."""
    counts = {name: count for name, count in run["counts"].items() if name not in OPTIONAL_FATES or count}
    return {name: run[name] for name in _KEPT} | {"counts": counts}


def _shortened(runs: Sequence[Answer]) -> Answer:
    """Return eight digits of each slice's input, and a digest of all that is known of each fifty runs."""
    texts = [json.dumps(runs[first : first + FEW], sort_keys=True) for first in range(0, len(runs), FEW)]
    inputs = [
        " ".join(run["input_fingerprint"][:8] for run in runs[first : first + FEW])
        for first in range(0, len(runs), FEW)
    ]
    counts = {name: sum(run["counts"][name] for run in runs) for name in runs[0]["counts"]}
    return {
        "inputs": inputs,
        "counts": counts,
        "runs": [hashlib.sha256(text.encode()).hexdigest()[:32] for text in texts],
    }


def _rows(lake: Lake, pipeline: str, name: str, attempts: list[tuple[str, str]]) -> str:
    """Return the number of committed rows of a table and a hash of their contents, without the attempt."""
    rows = read_attempts(lake.table(pipeline, name), attempts)
    if not rows.num_rows:
        return "0"
    named = rows.select(sorted(set(rows.column_names) - {"attempt_id"})).to_pylist()
    lines = sorted(repr(sorted(row.items())) for row in named)
    digest = hashlib.sha256("\n".join(lines).encode("utf-8", "surrogatepass")).hexdigest()
    return f"{len(lines)} {digest[:32]}"
