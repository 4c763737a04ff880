"""The current table of the simulated pipeline (`publish.current_tables`): which run's rows each partition has.

The product's code decides when the table is moved, and to which publication. Only Delta and the rows are replaced.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from jobs.lake.plain_table import PlainTable, Replacement, Shows
from tests.simulation.world import World


@dataclass(frozen=True)
class PublishedRows:
    """The rows of some slices: slice -> the run that has made them."""

    runs: Mapping[str, str]
    num_rows: int = 1


@dataclass
class CurrentTable:
    """All versions of the table, each with what it shows. `moved` is called after each move."""

    world: World
    moved: Callable[[Shows, Mapping[str, str]], None]
    versions: list[tuple[Shows, dict[str, str]]] = field(default_factory=list)

    def open(self, uri: str) -> PlainTable | None:
        self.world.running().stop_here("open the current table")
        newest = len(self.versions)
        if newest > 1 and self.world.access().happens("delayed listing of a table", self.world.rates.delayed):
            newest -= 1
        if not newest:
            return None
        opened: Any = None
        return PlainTable(uri=uri, opened=opened, version=newest, shows=self.versions[newest - 1][0])

    def create(self, _uri: str, _schema: object) -> None:
        self.world.running().stop_here("create the current table")
        if not self.versions:
            self.versions.append(((0, 0), {}))

    def replace(self, table: PlainTable, actions: Iterable[PublishedRows], new: Replacement) -> bool:
        written = [*actions]
        for _ in range(self.world.rng.choice([1, 1, 40])):
            self.world.running().stop_here("write files")
        self.world.running().stop_here("move the current table")
        if len(self.versions) != table.version:
            self.world.fault("lost race for a table")
            return False
        rows = dict(self.versions[-1][1])
        for slice_id in [*rows] if new.slices is None else new.slices:
            rows.pop(slice_id, None)
        for block in written:
            rows |= block.runs
        self.versions.append((new.shows, rows))
        self.moved(new.shows, rows)
        return True

    def patch(self, patch: pytest.MonkeyPatch) -> None:
        """Let the product's code use this table."""

        def part(projection: Any, changed: Collection[str], _before: object, *, keys: object) -> object:  # noqa: ANN401
            del keys
            shown = projection.view.published
            return changed, [PublishedRows({slice_id: shown[slice_id] for slice_id in changed if slice_id in shown})]

        move = "jobs.publishing.table_move"
        patch.setattr("jobs.lake.plain_table.open_plain", self.open)
        patch.setattr("jobs.lake.plain_table.replace_slices", self.replace)
        patch.setattr("jobs.publishing.current_tables.sync_newest", lambda _uri: None)
        patch.setattr("jobs.publishing.current_tables.table_columns", lambda _uri: {"slice_id": "string"})
        patch.setattr(f"{move}.open_plain", self.open)
        patch.setattr(f"{move}.create_plain", self.create)
        patch.setattr(f"{move}.sync_newest", lambda _uri: None)
        patch.setattr(f"{move}.pause_s", lambda _attempt: 0)
        patch.setattr(f"{move}.published_schema", lambda *_positional, **_named: None)
        patch.setattr(f"{move}.write_rows", lambda _uri, rows: [rows])
        patch.setattr(f"{move}.published_rows_of", lambda _work, _table, view: [PublishedRows(dict(view.published))])
        patch.setattr(f"{move}._Projection._part", part)
