"""The checks of one pipeline of the matrix, without Spark: the reference against the tasks of a chunk."""

import random
from collections.abc import Iterator, Sequence
from itertools import pairwise

from tests.matrix import laws
from tests.matrix.brute_sql import can_read, windows_of_the_log
from tests.matrix.buckets import ONE_CHUNK, Way, replay
from tests.matrix.log import HOURS, Commit
from tests.matrix.one_process import Answer, Hashes, answer
from tests.matrix.pipelines import Case
from tests.matrix.published_model import published_rows
from tests.matrix.rows import Row, Rows, expected_rows, first_difference
from windowlib.columnar.plan import RECORDS_PER_BLOCK
from windowlib.profiles import EngineFault
from windowlib.records import tables

DRIVERS = (tables.INVALID_RECORDS, tables.WATERMARKS)
"""The tables that the tasks of a chunk do not emit."""


def disagreement(case: Case, commits: Sequence[Commit], hashes: Hashes, rng: random.Random) -> str | None:
    """Play one pipeline in one process and through the tasks of chunks; return what differs first, or None.

    A pipeline whose engine answers with a fault of its own (an NPE of Flink's) has no rows, and nothing is asked of it.
    """
    try:
        said = answer(case, commits, hashes)
    except EngineFault:
        return None
    return next(_all_that_differs(case, said, hashes, rng), None)


def _all_that_differs(case: Case, said: Answer, hashes: Hashes, rng: random.Random) -> Iterator[str]:
    wanted = emitted_rows(case, said)
    whole = replay(case, said, hashes, ONE_CHUNK)
    if (found := first_difference(wanted, whole.rows)) is not None:
        yield f"in one chunk, {found}"
    yield from laws.open_equations(whole.rows, whole.tallies, said)
    yield from view_differs(case, said, laws.view_rows(case, whole.rows.get(tables.WINDOW_OUTPUTS, ())))
    way = random_way(rng)
    cut = replay(case, said, hashes, way)
    if (found := first_difference(wanted, cut.rows)) is not None:
        yield f"cut as {way}, {found}"
    if whole.digests() != cut.digests():
        other = sorted({place for place, _ in whole.digests().items() ^ cut.digests().items()})
        yield f"cut as {way}: other digests, of (slice, table) {other}"


def emitted_rows(case: Case, said: Answer) -> Rows:
    """Return the rows that tasks emit. They have no column `record`, which Spark adds later."""
    rows = expected_rows(case, said)
    return {
        name: [{column: value for column, value in row.items() if column != "record"} for row in found]
        for name, found in rows.items()
        if name not in DRIVERS
    }


def view_differs(case: Case, said: Answer, seen: Sequence[Row]) -> Iterator[str]:
    """Compare what readers see with the model, with what was fired, and with the log's own records."""
    if (found := first_difference({"published": published_rows(case, said)}, {"published": seen})) is not None:
        yield f"the view shows other rows than the last panes: {found}"
    if (lost := laws.lost_to_readers(case, said, seen)) is not None:
        yield f"the view loses or doubles records: {lost}"
    if can_read(case):
        windows = windows_of_the_log(case, said.entries)
        if (found := first_difference({"published": windows}, {"published": seen})) is not None:
            yield f"SQL over the log says something else: {found}"


def random_way(rng: random.Random) -> Way:
    """Return a way to cut the log, spread it over buckets and feed it in batches, the smallest included."""
    cuts = sorted(rng.sample(range(1, len(HOURS)), rng.randrange(1, len(HOURS))))
    chunks = tuple(range(start, end) for start, end in pairwise([0, *cuts, len(HOURS)]))
    return Way(
        chunks=chunks,
        buckets=rng.choice([1, 2, 3]),
        batch=rng.choice([1, 7, 1_000]),
        block=rng.choice([1, 7, RECORDS_PER_BLOCK]),
        executor=rng.choice(["auto", "operator"]),
    )
