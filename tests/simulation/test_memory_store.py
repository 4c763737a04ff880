"""What the processes of a world share is what each would make of the commits alone.

A shared view takes over what the view before it had, so the tables have events of all kinds that the simulation writes.
"""

from collections.abc import Mapping
from dataclasses import fields
from random import Random

import pytest

from jobs.ledger.history import EventHistory
from jobs.ledger.view import LedgerView
from tests.simulation.memory_store import MemoryTable
from tests.simulation.operations import made_start
from tests.simulation.schedules import play
from tests.simulation.world import World
from windowlib.errors import LedgerError


@pytest.fixture(scope="module", params=[None, 57, 103])
def table(request: pytest.FixtureRequest) -> MemoryTable:
    """Of the start of two operations, or of the schedule of a seed."""
    if request.param is None:
        return made_start().world.table
    world = World(Random(request.param))
    play(request.param, world)
    return world.table


def test_a_shared_history_is_that_of_a_process_that_reads_all_commits_at_once(table: MemoryTable) -> None:
    for version in range(len(table.commits) + 1):
        shared, alone = table.history(version, uri="memory"), EventHistory()
        alone.take_in([row for rows in table.commits[:version] for row in rows], {}, uri="memory")
        assert content_of(shared, version) == content_of(alone, version), version


def content_of(history: EventHistory, version: int) -> list[object]:
    view = history.project.view(version)
    values = [getattr(view, column.name) for column in fields(LedgerView)]
    plain = [list(value.items()) if isinstance(value, Mapping) else value for value in values]
    return [plain, history.known, history.count, history.tip, history.tips, history.commits, len(history.events)]


def test_a_commit_that_was_overwritten_is_read_again(table: MemoryTable) -> None:
    """A defect of the store that the checkers have to find is not hidden by what was read before."""
    changed, version = table.copy(), len(table.commits)
    changed.commits[0] = [dict(row) | {"who": "another person"} for row in table.commits[0]]
    with pytest.raises(LedgerError, match="its content has hash"):
        changed.history(version, uri="memory")
    table.history(version, uri="memory")
