"""A clean-up at any moment, also a killed one, changes nothing for readers, open requests, rollbacks and next slices.

A lake is made by random steps and copied. One copy is cleaned, and both then take the same further steps.
"""

import shutil
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from deltalake import DeltaTable

from jobs.lake.leftover_files import LakeFiles
from jobs.lake.table_files import Attempt
from jobs.ledger.history import REMEMBERED
from jobs.ledger.removals import Why
from jobs.ledger.view import LedgerView, Request
from jobs.pipeline.files import parse_pipeline
from jobs.pipeline.models.retention import RetentionGrammar
from jobs.publishing.cleaning import Leftovers, clean, clean_lake, rows_checker
from jobs.publishing.decisions import cancel, rollback
from jobs.publishing.optimistic_check import By
from jobs.publishing.publishing import publish
from jobs.publishing.retention import Need
from jobs.reading.verify import verify
from tests.support.fuzzing import seeds
from tests.support.repair_model import DAY_MS, Spec, day_text
from tests.support.small_lake import WHO, SmallLake
from windowlib.errors import LedgerError, RequestError, SpecError

KEPT = RetentionGrammar.model_validate({"superseded": "3d", "unpublished": "3d", "checkpoints": "30d"})


class Killed(BaseException):
    """The process ends at once."""


class KilledFiles(LakeFiles):
    """The files of a lake, for a process that is killed before one of its commits and removals."""

    left: int = 0

    def _reach(self) -> None:
        KilledFiles.left -= 1
        if KilledFiles.left < 0:
            raise Killed

    def delete_rows(self, table: str, attempts: Collection[Attempt], *, metadata: Mapping[str, str]) -> None:
        self._reach()
        super().delete_rows(table, attempts, metadata=metadata)

    def remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._reach()
            super().remove([path])


def cleaned(lake: SmallLake, *, dry_run: bool = False, older_than_ms: int = 0) -> Leftovers:
    return clean_lake(lake.work(), older_than_ms=older_than_ms, who=WHO, dry_run=dry_run)


def killed_and_cleaned(lake: SmallLake, rng: Random) -> Leftovers:
    """Clean up some times, and end each time but the last somewhere in the middle."""
    for _ in range(rng.randrange(3)):
        work = lake.work()
        KilledFiles.left = rng.randrange(6)
        files = KilledFiles(lake=work.lake, pipeline="late")
        with suppress(Killed):
            clean(work, files, older_than_ms=0, who=WHO, check_rows=rows_checker(work.lake, "late"), dry_run=False)
    return cleaned(lake)


def random_steps(lake: SmallLake, rng: Random, steps: int) -> None:
    """Append, replay, publish, cancel, roll back and wait."""
    for _ in range(steps):
        lake.now_ms += rng.randrange(1, 2 * DAY_MS)
        head = len(lake.view().published)
        step = rng.choice(["append", "next", "next", "late", "again", "stage", "cancel", "rollback"])
        if step == "append":
            lake.append(rng)
        elif step == "next" and head < lake.days:
            lake.run(head, rng.randrange(head, lake.days))
        elif step == "cancel":
            cancel_all(lake)
        elif step == "rollback" and len(lake.view().standing) > 1:
            rollback(lake.work(), lake.view().standing[-1].seq, reason=WHO, who=WHO)
        elif head and step in {"late", "stage"}:
            lake.append(rng, rng.randrange(head))
        if head and step in {"again", "stage"}:
            lake.run(0, head - 1, publish=step == "again")


def cancel_all(lake: SmallLake) -> None:
    for request in lake.view().open_requests():
        work = lake.work()
        cancel(work, request.request_id, reason=WHO, by=By(who=WHO, decision_id=work.new_id()))


def a_used_lake(root: Path, rng: Random) -> SmallLake:
    lake = SmallLake(root, retention=KEPT)
    for _ in range(3):
        lake.append(rng)
    lake.run(0, 2)
    random_steps(lake, rng, 14)
    return lake


@pytest.mark.slow
def test_the_slices_of_an_open_request_are_collected_once_for_all_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, collected = SmallLake(tmp_path, retention=KEPT), list[str]()
    for _ in range(3):
        lake.append(Random(0))
    lake.run(0, 2)
    lake.append(Random(1), 0)
    lake.run(0, 2, publish=False)

    def collecting(request: Request) -> frozenset[str]:
        collected.append(request.request_id)
        return frozenset(request.runs) | {slice_id for attempt in request.attempts for slice_id in attempt.slice_ids}

    view = lake.view()
    [request] = view.open_requests()
    monkeypatch.setattr(Request, "slice_ids", property(collecting))
    stored = {(run.result.slice.slice_id, run.result.attempt_id): 0 for run in view.runs.values()}
    assert len(stored) > 2
    assert Need(view=view, retention=KEPT, now_ms=lake.now_ms).unneeded(stored) == {}
    assert collected == [request.request_id]


def copied(lake: SmallLake, root: Path) -> SmallLake:
    shutil.copytree(lake.root, root)
    return replace(lake, root=root)


def shown(lake: SmallLake) -> tuple[object, ...]:
    """What readers see: the ids of the runs, and the rows."""
    view = lake.view()
    return tuple(view.published.items()), lake.rows() if view.published else []


def go_on(lake: SmallLake, rng: Random) -> list[tuple[object, ...]]:
    """Take further steps, and return what readers see after each."""
    seen = [shown(lake)]
    if any(request.runs for request in lake.view().open_requests()):
        publish(lake.work(), who=WHO)
        seen.append(shown(lake))
    lake.append(rng)
    head = len(lake.view().published)
    if head < lake.days:
        lake.run(head, lake.days - 1)
        seen.append(shown(lake))
    rollback(lake.work(), lake.view().standing[-1].seq, reason=WHO, who=WHO)
    seen.append(shown(lake))
    lake.append(rng, 0)
    lake.run(0, lake.days - 1)
    return [*seen, shown(lake)]


def versions_in_retention(lake: SmallLake, view: LedgerView) -> list[int]:
    """The versions at which readers may look back: since the newest publication before the retention."""
    times = [publication.at_ms for publication in view.publications]
    recent = [number for number, at_ms in enumerate(times) if lake.now_ms - at_ms < 3 * DAY_MS]
    first = max(recent[0] - 1, 0) if recent else len(times) - 1
    return [publication.seq for publication in view.publications[first:]]


@pytest.mark.slow
def test_a_clean_up_at_any_moment_changes_nothing_that_anybody_needs(tmp_path: Path) -> None:
    reasons: set[Why] = set()
    for seed in seeds(2):
        rng = Random(seed)
        used = a_used_lake(tmp_path / f"{seed}", rng)
        tidy = copied(used, tmp_path / f"{seed}-tidy")
        past = {at: used.rows(at) for at in versions_in_retention(used, used.view()) if used.view().published_at(at)}
        planned = cleaned(tidy, dry_run=True)
        reasons |= {rows.why for rows in planned.rows}
        killed_and_cleaned(tidy, rng)
        again = cleaned(tidy)
        assert (again.rows, again.files, again.condemned) == ((), (), ())
        assert verify(tidy.work().lake, "late", tidy.view()).findings == ()
        assert {at: tidy.rows(at) for at in past} == past
        state = rng.getstate()
        expected = go_on(used, rng)
        rng.setstate(state)
        assert go_on(tidy, rng) == expected
        assert verify(tidy.work().lake, "late", tidy.view()).findings == ()
    assert reasons


@pytest.fixture
def lake(tmp_path: Path) -> SmallLake:
    """Four published days; the first three were published anew 10 days later, with another record."""
    rng = Random(1)
    made = SmallLake(tmp_path, retention=KEPT)
    for _ in range(4):
        made.append(rng)
    for day in range(4):
        made.run(day, day)
        made.now_ms += DAY_MS
    made.append(rng, 0)
    made.now_ms += 10 * DAY_MS
    made.run(0, 3)
    return made


@pytest.mark.slow
def test_removed_rows_are_named_and_not_taken_for_damage(lake: SmallLake) -> None:
    first, last = lake.view().publications[0], lake.view().standing[-1]
    seen = lake.rows()
    assert cleaned(lake).rows == ()  # three days have not passed
    lake.now_ms += 4 * DAY_MS
    version, before = lake.view().version, lake.rows(first.seq)
    assert cleaned(lake, dry_run=True).rows
    assert (lake.view().version, lake.rows(first.seq)) == (version, before)
    assert {rows.why for rows in cleaned(lake).rows} == {Why.SUPERSEDED}
    assert lake.rows() == seen
    for read in (
        lambda: lake.rows(first.seq),
        lambda: rollback(lake.work(), last.seq, reason=WHO, who=WHO),
        lambda: lake.view().run(first.changes[day_text(0)] or ""),
    ):
        with pytest.raises(LedgerError, match=r"of slice 1970-01-0\d were removed by a clean-up of a test on 2027-"):
            read()
    assert verify(lake.work().lake, "late", lake.view()).findings == ()
    assert not (lake.root / "late" / "window_outputs" / "nothing").exists()


@pytest.mark.slow
def test_a_ledger_of_before_a_clean_up_records_again_what_it_has_removed(lake: SmallLake, tmp_path: Path) -> None:
    lake.now_ms += 40 * DAY_MS
    lake.append(Random(2))
    lake.run(4, 4)
    ledger, backup, seen = tmp_path / "late" / "ledger", tmp_path / "backup", lake.rows()
    shutil.copytree(ledger, backup)
    assert {rows.why for rows in cleaned(lake).rows} == {Why.SUPERSEDED, Why.CHECKPOINTS}
    shutil.rmtree(ledger)
    shutil.copytree(backup, ledger)
    REMEMBERED.forget_all()
    assert len(verify(lake.work().lake, "late", lake.view()).findings) > 10
    assert cleaned(lake).rows == ()
    assert verify(lake.work().lake, "late", lake.view()).findings == ()
    assert lake.rows() == seen
    version = lake.view().version
    cleaned(lake)
    assert lake.view().version == version


@pytest.mark.slow
def test_a_removed_state_is_named_and_a_warm_up_replaces_it(lake: SmallLake) -> None:
    lake.now_ms += 40 * DAY_MS
    lake.append(Random(2))
    lake.run(4, 4)
    assert Why.CHECKPOINTS in {rows.why for rows in cleaned(lake).rows}
    lake.append(Random(3), 2)
    version = lake.view().version
    for first in (0, 2):
        with pytest.raises(RequestError, match=r"the state after slice 1970-01-06 was removed by a clean-up of a test"):
            lake.run(first, 4)
    assert lake.view().version == version
    outcome = lake.run(2, 4, warms_up=True)
    assert outcome.is_published
    again = SmallLake(lake.root.with_name("again"), days=lake.days)
    again.root.mkdir()
    (again.root / "log").symlink_to(lake.root / "log")
    again.run(0, 4)
    assert {*lake.view().published.values()} == {*again.view().published.values()}
    assert lake.rows() == again.rows()


@pytest.mark.slow
def test_an_earlier_version_shows_a_run_by_the_attempt_that_a_warm_up_has_stored_again(tmp_path: Path) -> None:
    rng = Random(1)
    kept = RetentionGrammar.model_validate({"superseded": "400d", "unpublished": "30d", "checkpoints": "30d"})
    lake = SmallLake(tmp_path, spec=Spec("tumbling: {size: 70h}", "6h", 0), retention=kept)
    for day in range(6):
        lake.append(rng)
        lake.run(day, day)
    lake.now_ms += 46 * DAY_MS
    assert {rows.why for rows in cleaned(lake).rows} == {Why.CHECKPOINTS}
    past = {publication.seq: lake.rows(publication.seq) for publication in lake.view().publications}
    lake.append(rng, 3)
    assert lake.run(3, 5, warms_up=True).is_published
    lake.now_ms += DAY_MS
    assert Why.UNPUBLISHED in {rows.why for rows in cleaned(lake).rows}
    assert {at: lake.rows(at) for at in past} == past


@pytest.mark.slow
def test_files_stay_for_readers_of_the_version_before_and_are_removed_later(lake: SmallLake) -> None:
    lake.now_ms += 4 * DAY_MS
    table = lake.root / "late" / "window_outputs"
    before = DeltaTable(table)
    rows = before.to_pyarrow_table().num_rows
    removed = cleaned(lake, older_than_ms=DAY_MS)
    assert removed.rows
    assert removed.expired == ()
    assert cleaned(lake, older_than_ms=DAY_MS).expired == ()
    assert DeltaTable(table).to_pyarrow_table().num_rows < rows
    assert DeltaTable(table, version=before.version()).to_pyarrow_table().num_rows == rows
    assert cleaned(lake).expired
    assert cleaned(lake).expired == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("retention: {superseded: 1h}", "must be at least 1d, because a reader may still be at work; found 1h"),
        ("retention: {checkpoints: 10d}", "found 10d, allowed: at least restate.at_most_age, which is 30d"),
        ("retention: {schedule: never}", "schedule"),
    ],
)
def test_a_retention_that_is_too_short_is_refused(text: str, message: str) -> None:
    from tests.support.fake_replay import PIPELINE

    with pytest.raises(SpecError, match=message):
        parse_pipeline(f"{PIPELINE}\n{text}\n", source="sales.yaml")
