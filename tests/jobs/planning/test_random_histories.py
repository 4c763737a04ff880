"""Random histories of a log, written by deltalake, against what plain Python knows of each record."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from jobs.publishing.accepting import accept_rewrites, rewrites_of
from jobs.readers import published_table
from tests.support.delta_logs import commits_of
from tests.support.fuzzing import seeds
from tests.support.log_shop import DAYS, SCHEMA, LogShop, Row, records
from windowlib.errors import HindcastError

HOUR_MS = 3_600_000
YAML = """
pipeline: clicks
log:
  table: log{form}
  key: [k]
  event_time: {{column: at, unit: ms}}
  slice: {{by: day}}
watermark: {{kind: bounded, out_of_orderness: 1h}}
windows: {{tumbling: {{size: 3h}}, allowed_lateness: 30m}}
aggregates: {{seqs: {{collect_list: seq}}, values: {{collect_list: v}}}}
"""


@dataclass
class History(LogShop):
    """A log whose commits a seed draws. `order` has the number of each record ever appended -> its place."""

    chance: Random = field(default_factory=Random)
    order: dict[int, int] = field(default_factory=dict)
    read: dict[str, list[Row]] = field(default_factory=dict)
    told: int = 0
    replayed: int = 0
    refusals: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return YAML.format(form=f"\n  {self.form}")

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(str(self.log))

    def rows(self) -> dict[str, list[Row]]:
        """Slice -> the records that the log has now, in log order."""
        rows = sorted(pa.table(self.table.to_pyarrow_table()).to_pylist(), key=lambda row: self.order[row["seq"]])
        return {day: [_seen(row) for row in rows if str(row["day"]) == day] for day in DAYS}

    def append(self, day: int | None = None, **options: Any) -> None:  # noqa: ANN401
        rows = records(self.chance, len(self.order), self.chance.randrange(1, 5), day)
        self.order |= {row["seq"]: row["seq"] for row in rows}
        self.put([_without_nulls(row) for row in rows], **options)

    def some(self) -> str:
        seqs = self.chance.sample(sorted(self.order), min(len(self.order), self.chance.randrange(1, 4)))
        return f"seq IN ({', '.join(map(str, seqs))})"

    def change(self) -> str:
        """Make a random commit, or remove files as a maintenance job does; return what it was."""
        name = self.chance.choice([name for name, (weight, _) in CHANGES.items() for _ in range(weight)])
        CHANGES[name][1](self)
        return name

    def _overwrite(self) -> None:
        write_deltalake(str(self.log), pa.table(self.table.to_pyarrow_table()).sort_by("seq"), mode="overwrite")

    def _restore(self) -> None:
        version = self.table.version()
        self.table.restore(self.chance.randrange(max(0, version - 4), max(1, version)))

    def _remove_commits(self) -> None:
        self.table.create_checkpoint()
        for commit in commits_of(self.log)[:-1][: self.chance.randrange(self.table.version() + 1)]:
            commit.unlink()

    def _merge(self) -> None:
        if "appended" in self.form:  # a MERGE writes its records in no order
            return
        rows = records(self.chance, len(self.order), 2)
        self.order |= {row["seq"]: row["seq"] for row in rows}
        known = self.chance.choice(sorted(self.order))
        rows = [_without_nulls(row) for row in (*rows, rows[0] | {"seq": known, "v": 999})]
        source = pa.Table.from_pylist(rows, SCHEMA)
        columns = {name: f"s.{name}" for name in SCHEMA.names}
        merge = self.table.merge(source, predicate="t.seq = s.seq", source_alias="s", target_alias="t")
        merge.when_matched_update({"v": "s.v"}).when_not_matched_insert(columns).execute()

    def look(self) -> None:
        """A slice that is not told as changed has the records that its run has read."""
        with contextlib.suppress(HindcastError):
            changed, rows = self.changed(), self.rows()
            self.told += len(changed)
            for day in self.published().keys() - changed.keys():
                assert rows[day] == self.read[day], day

    def replay(self) -> bool:
        """Replay all days; readers then see what the log has, or they see what they saw."""
        before = self.published()
        try:
            outcome = self.run()
        except HindcastError as error:
            assert self.published() == before
            self.refusals.append(str(error))
            return False
        if not outcome.is_published:  # a slice that cannot be told apart has other records: a person looks at it
            assert self.published() == before
            return False
        self.read = self.rows()
        self.replayed += 1
        assert self.changed() == {}
        assert self.windows() == _windows([row for day in DAYS for row in self.read[day]])
        return True

    def accept(self) -> None:
        with contextlib.suppress(HindcastError):
            found = rewrites_of(self.work, self.work.ledger.view())
            accept_rewrites(self.work, found, found.rewrites, reason="by law", who="a test")

    def windows(self) -> list[tuple[Any, ...]]:
        rows = published_table(self.root, "clicks").to_pylist()
        starts = ((row, int(row["window_start"].timestamp()) * 1000) for row in rows)
        return sorted((str(row["k"]), start, row["seqs"], row["values"]) for row, start in starts)


CHANGES: dict[str, tuple[int, Callable[[History], object]]] = {
    "append": (5, lambda log: log.append(log.chance.choice((None, None, 0, 1, 2)))),
    "delete": (1, lambda log: log.table.delete(log.some())),
    "delete a day": (1, lambda log: log.table.delete(f"day = '{log.chance.choice(DAYS)}'")),
    "update": (2, lambda log: log.table.update(updates={"v": "v + 100"}, predicate=log.some())),
    "merge": (1, History._merge),
    "compact": (2, lambda log: log.table.optimize.compact()),
    "z-order": (1, lambda log: log.table.optimize.z_order(["k"])),
    "overwrite": (1, History._overwrite),
    "restore": (2, History._restore),
    "vacuum": (1, lambda log: log.table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)),
    "retention": (1, History._remove_commits),
}
"""Name -> how often it is drawn, and what it does."""


def _without_nulls(row: Row) -> Row:
    return row | {"k": row["k"] or "zoe", "v": row["v"] or 0}


def _seen(row: Row) -> Row:
    return {name: row[name] for name in ("k", "at", "v", "seq")}


def _windows(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    """Return the windows that are complete after some records in log order, by the definition of tumbling windows."""
    windows: dict[tuple[str, int], list[Row]] = {}
    highest = watermark = -(2**60)
    for row in rows:
        start = row["at"] - row["at"] % (3 * HOUR_MS)
        if start + 3 * HOUR_MS - 1 + HOUR_MS // 2 > watermark:
            windows.setdefault((str(row["k"]), start), []).append(row)
        highest = max(highest, row["at"])
        watermark = highest - HOUR_MS - 1
    complete = {key: own for key, own in windows.items() if key[1] + 3 * HOUR_MS - 1 <= watermark}
    return sorted(
        (key, start, [row["seq"] for row in own], [row["v"] for row in own]) for (key, start), own in complete.items()
    )


def _play(root: Path, seed: int) -> History:
    chance = Random(seed)
    form = chance.choice(("order: [seq]", "order: [seq]", "order: appended"))
    history = History(root, form=form, chance=chance)
    history.append()
    history.replay()
    for _ in range(chance.randrange(5, 16)):
        with contextlib.suppress(DeltaError):  # for example a RESTORE of a version that is gone
            history.names.append(history.change())
        if chance.random() < 0.6:
            history.look()
        if chance.random() < 0.4 and not history.replay():
            history.accept()
            history.replay()
    return history


@pytest.mark.slow
def test_no_change_of_a_log_stays_unseen(tmp_path: Path) -> None:
    """What readers see is what the log has, or the slices with other records are told, or the log is refused."""
    played = [_play(tmp_path / str(seed), seed) for seed in seeds(8)]
    for refusal in (text for history in played for text in history.refusals):
        assert "docs/" in refusal or "`" in refusal, "it names a way on"
    assert sum(history.replayed for history in played) > len(played)
    assert sum(history.told for history in played) > len(played)
