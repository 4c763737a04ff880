"""The tables of past runs have the columns of their spec, as in the checks of a replay."""

from dataclasses import replace
from pathlib import Path

from expectations.suites import WINDOW_OUTPUTS
from jobs.ledger.view import RequestKind
from jobs.planning.suites import checked_columns
from jobs.reading.verify import Span
from jobs.review.suites.history import PastTables, whole_history
from tests.support.day_chains import Place, Put, run
from tests.support.replays import pipeline_of


def test_a_column_that_only_a_candidate_has_is_not_in_the_table_of_a_run(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.put(Put(0, 1), Put(0, 5), Put(1, 25))
    work = place.work()
    run(work, 0, 2)
    wider = replace(work, pipeline=pipeline_of(place.text().replace("{sum: v}", "{sum: v}, most: {max: v}")))
    run(wider, 0, 2, publish=False, kind=RequestKind.CANDIDATE)
    view = work.ledger.view()
    history = whole_history("late", view, Span())
    tables = PastTables(lake=work.lake, view=view, history=history)
    [block] = tables.blocks()
    names = tables.table(WINDOW_OUTPUTS, block, None).schema.names
    assert tuple(names) == checked_columns(work.pipeline)[WINDOW_OUTPUTS]
    assert "most" not in names
