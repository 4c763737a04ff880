"""`hindcast mend`: damaged rows of any table are made again with the same ids, and nothing else changes."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from errno import EACCES
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.ledger.removals import Why, removed_event
from jobs.ledger.view import LedgerView, RequestKind, StagedRun
from jobs.orchestration import mending
from jobs.orchestration.attempts import AttemptCondemned
from jobs.orchestration.maintenance import verify_all
from jobs.orchestration.mending import Mended, findings_of, mend
from jobs.orchestration.requests import Staging, run_request
from jobs.pipeline.models.retention import RetentionGrammar
from jobs.pipeline.slices import parse_bound, slices_between
from jobs.planning.request_context import Asked
from jobs.publishing.cleaning import clean_lake
from jobs.publishing.publishing import publish
from jobs.reading.stored_rows import Finding, StoredRuns, run_attempt
from jobs.reading.verify import Span, verify
from jobs.replay.orders import ReplayOrder
from jobs.replay.restart import restart_before
from jobs.runs import EMPTY_STATE, RunResult
from tests.support.day_chains import FIRST_MS, HOUR_MS, SCHEMA, SESSION, Place, Put, replayed, run as day_chain_run
from tests.support.flipped_bits import bits_in_pages, flip
from tests.support.fuzzing import seeds
from tests.support.repair_model import DAY_MS, Spec, day_text
from tests.support.replays import pipeline_of
from tests.support.small_lake import WHO, SmallLake, replay
from tests.support.waiving import waive_newest
from windowlib.errors import RequestError, StoreError
from windowlib.records import tables

DAYS = 6


def a_lake(root: Path, rng: Random) -> SmallLake:
    """Return a lake with published days, and a last one that only the log has."""
    lake = SmallLake(root)
    for _ in range(DAYS):
        lake.append(rng)
    lake.run(0, DAYS - 2, chunk=rng.randrange(1, DAYS))
    return lake


def files_that_count(lake: SmallLake) -> list[Path]:
    view = lake.view()
    attempts = {run.result.attempt_id for run in view.runs.values()}
    tables = (directory for directory in (lake.root / "late").iterdir() if directory.name != "ledger")
    paths = (Path(uri.removeprefix("file://")) for table in tables for uri in DeltaTable(table).file_uris())
    return sorted(path for path in paths if path.parent.name.removeprefix("attempt_id=") in attempts)


def damage(path: Path, rng: Random) -> None:
    """Flip a bit of a file, cut it, or remove it."""
    kind = rng.randrange(3)
    if kind == 0:
        flip(path, bits_in_pages(path, rng, 1)[0])
    elif kind == 1:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    else:
        path.unlink()


def mended(lake: SmallLake, day: int, *, dry_run: bool = False) -> Mended:
    [slice_] = lake.slices(day, day)
    return mend(lake.work(), slice_, replay, who=WHO, dry_run=dry_run)


def content(lake: SmallLake) -> dict[str, tuple[object, ...]]:
    view = lake.view()
    results = (run.result for run in view.runs.values())
    return {each.run_id: (each.state_after, dict(each.digests), each.counts, each.verdict) for each in results}


@pytest.mark.slow
def test_damage_of_any_file_is_mended_and_later_slices_are_the_same(tmp_path: Path) -> None:
    for seed in seeds(2):
        rng = Random(seed)
        lake = a_lake(tmp_path / str(seed), rng)
        before, seen, publications = content(lake), lake.rows(), lake.view().publications
        for path in rng.sample(files_that_count(lake), 2):
            damage(path, rng)
        found = verify(lake.work().lake, "late", lake.view())
        assert found.findings
        assert found.mendable
        for slice_id in found.mendable:  # the oldest first, because later states follow from earlier ones
            day = next(day for day in range(DAYS) if day_text(day) == slice_id)
            version = lake.view().version
            assert mended(lake, day, dry_run=True).damaged
            assert lake.view().version == version
            done = mended(lake, day)
            assert (done.left, {*done.attempts}) == ((), {*done.damaged})
        assert verify(lake.work().lake, "late", lake.view()).findings == ()
        assert content(lake) == before
        assert lake.view().publications == publications
        assert (lake.rows(), lake.rows(at=publications[0].seq)) == (seen, seen)
        lake.run(0, DAYS - 1)
        fresh = SmallLake(tmp_path / f"{seed}-again", days=DAYS)
        fresh.root.mkdir()
        (fresh.root / "log").symlink_to(lake.root / "log")
        fresh.run(0, DAYS - 1)
        assert {*lake.view().published.values()} == {*fresh.view().published.values()}
        assert lake.rows() == fresh.rows()


@pytest.mark.slow
def test_a_slice_whose_state_before_is_damaged_is_refused_and_the_slice_to_mend_first_is_named(tmp_path: Path) -> None:
    rng = Random(3)
    lake = a_lake(tmp_path, rng)
    run = lake.view().published_run(day_text(3))
    assert run is not None
    [tallies] = (path for path in files_that_count(lake) if f"tallies/slice_id={day_text(3)}" in str(path))
    part = run.result.checkpoint.earlier[-1].slice_id if run.result.checkpoint.earlier else day_text(2)
    [state] = (path for path in files_that_count(lake) if f"window_state/slice_id={part}" in str(path))
    tallies.unlink()
    state.unlink()
    before = lake.view().version
    with pytest.raises(RequestError, match=f"Mend that first: hindcast mend late {part}"):
        mended(lake, 3)
    assert lake.view().version == before


def test_a_slice_with_other_records_now_is_refused(tmp_path: Path) -> None:
    rng = Random(4)
    lake = a_lake(tmp_path, rng)
    [tallies] = (path for path in files_that_count(lake) if f"tallies/slice_id={day_text(3)}" in str(path))
    tallies.unlink()
    lake.append(rng, 3)
    with pytest.raises(RequestError, match="has other records in the log now than run"):
        mended(lake, 3)


@pytest.mark.slow
def test_a_slice_without_damage_is_left_alone(tmp_path: Path) -> None:
    lake = a_lake(tmp_path, Random(5))
    version = lake.view().version
    assert mended(lake, 2).damaged == {}
    assert lake.view().version == version
    with pytest.raises(RequestError, match="has no run in the ledger"):
        mended(lake, DAYS - 1)


@pytest.mark.slow
def test_a_slice_whose_state_before_was_removed_is_made_again_from_a_restart_point(tmp_path: Path) -> None:
    for seed in seeds(2):
        rng = Random(seed)
        lake = a_lake(tmp_path / str(seed), rng)
        lake.run(DAYS - 1, DAYS - 1)
        lake.now_ms += 30 * DAY_MS
        lake.retention = RetentionGrammar().model_copy(update={"checkpoints_ms": DAY_MS})
        clean_lake(lake.work(), older_than_ms=0, who=WHO, dry_run=False)
        before, seen, runs = (
            content(lake),
            lake.rows(),
            [lake.view().run(id_) for id_ in lake.view().published.values()],
        )
        damageable = [day for day, run in enumerate(runs[:-1], start=1) if run.checkpoint_removal is not None]
        day = rng.choice(damageable)
        paths = [path for path in files_that_count(lake) if f"slice_id={day_text(day)}" in str(path)]
        damage(rng.choice([path for path in paths if path.parts[-4] not in tables.STATE_TABLES]), rng)
        assert mended(lake, day, dry_run=True).damaged
        done = mended(lake, day)
        assert (done.left, [*done.attempts]) == ((), [runs[day].result.run_id])
        clean_lake(lake.work(), older_than_ms=0, who=WHO, dry_run=False)
        assert verify(lake.work().lake, "late", lake.view()).findings == ()
        after = content(lake)
        assert {run_id: after[run_id] for run_id in before} == before  # it has the runs of the warm-up, too
        assert lake.rows() == seen


def cleaned(lake: SmallLake) -> None:
    """Remove the states that no replay starts from, and condemn the attempts that were not staged."""
    clean_lake(lake.work(), older_than_ms=0, who=WHO, dry_run=False)


def lose(lake: SmallLake, table: str, run: StagedRun) -> None:
    """Remove the files of a run in a table."""
    slice_id, attempt_id = run_attempt(run)
    directory = lake.root / "late" / table / f"slice_id={slice_id}" / f"attempt_id={attempt_id}"
    paths = [*directory.glob("*.parquet")]
    assert paths
    for path in paths:
        path.unlink()


def lake_without_old_states(root: Path, day: int = 1, size: str = "70h") -> SmallLake:
    """Return a lake of which a file of a day is lost. The day can only be made again after a warm-up."""
    rng = Random(1)
    lake = SmallLake(root, spec=Spec(f"tumbling: {{size: {size}}}", "6h", 0))
    for _ in range(DAYS):
        lake.append(rng)
    lake.run(0, DAYS - 2)
    lake.run(DAYS - 1, DAYS - 1)
    lake.now_ms += 60 * DAY_MS
    lake.retention = RetentionGrammar().model_copy(update={"checkpoints_ms": DAY_MS})
    cleaned(lake)
    view = lake.view()
    lose(lake, "tallies", view.run(view.published[day_text(day)]))
    return lake


@pytest.mark.slow
def test_rows_that_a_clean_up_condemns_meanwhile_mend_nothing(tmp_path: Path) -> None:
    lake = lake_without_old_states(tmp_path)
    view, orders = lake.view(), list[ReplayOrder]()

    def replay_beside_a_clean_up(order: ReplayOrder) -> list[RunResult]:
        orders.append(order)
        if len(orders) == 2:
            cleaned(lake)
        return replay(order)

    with pytest.raises(AttemptCondemned, match="was condemned while `hindcast mend` ran, so nothing was changed"):
        mend(lake.work(), lake.slices(1, 1)[0], replay_beside_a_clean_up, who=WHO)
    assert lake.view().runs.keys() == view.runs.keys()
    assert mended(lake, 1).left == ()
    assert verify(lake.work().lake, "late", lake.view()).findings == ()


@pytest.mark.slow
def test_a_published_run_without_an_attempt_that_counts_is_a_finding(tmp_path: Path) -> None:
    lake = lake_without_old_states(tmp_path)
    view = lake.view()
    place = run_attempt(view.run(view.published[day_text(1)]))
    lake.work().ledger.write(lambda _view: [removed_event({place: Why.MENDED}, who=WHO, reason="")])
    [finding] = verify_all(lake.work(), Span()).report.findings
    assert (finding.slice_id, finding.attempt_id) == (day_text(1), None)
    assert "Replay the slice with --warm-up" in finding.what
    lake.run(1, 1, warms_up=True)
    assert verify(lake.work().lake, "late", lake.view()).findings == ()


@pytest.mark.slow
def test_a_finding_without_an_attempt_does_not_hold_up_the_mending_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = a_lake(tmp_path, Random(3))
    view = lake.view()

    def forbid(_stored: StoredRuns, table: str, runs: Sequence[StagedRun]) -> None:
        raise StoreError(f"attempt_id={run_attempt(runs[0], table)[1]}") from PermissionError(EACCES, "denied")

    with monkeypatch.context() as other_user:  # what a user may not read need not be made again
        other_user.setattr(StoredRuns, "checked", forbid)
        report = verify(lake.work().lake, "late", view)
        assert (bool(report.findings), report.mendable) == (True, ())
    [tallies] = (path for path in files_that_count(lake) if f"tallies/slice_id={day_text(3)}" in str(path))
    tallies.unlink()
    told = "no attempt at the published run 12 counts any more"
    other = Finding(table=tables.LEDGER, slice_id=day_text(3), attempt_id=None, file=None, what=told)
    with monkeypatch.context() as patched:
        patched.setattr(mending, "findings_of", lambda *of: (*findings_of(*of), other))
        assert mended(lake, 3).attempts
    monkeypatch.setattr(mending, "findings_of", lambda *_of: (other,))
    with pytest.raises(RequestError, match=told):
        mended(lake, 3)


def as_of_old_runs(view: LedgerView) -> LedgerView:
    """Return a view whose runs tell no columns of the log, as those of earlier versions."""
    old = {run_id: replace(run, result=replace(run.result, state_columns=None)) for run_id, run in view.runs.items()}
    return replace(view, runs=old)


def test_verify_compares_states_over_a_column_that_no_stored_record_has(tmp_path: Path) -> None:
    """Defect: KeyError until a record of the new spec was late, because record tables told the types of the log."""
    place = Place(tmp_path)
    place.put(Put(0, 1), Put(1, 26))
    day_chain_run(place.work(), 0, 2)
    row = {"k": 1, "at": FIRST_MS + 50 * HOUR_MS, "seq": 9, "w": 7, "day": FIRST_MS // DAY_MS + 2}
    table = pa.Table.from_pylist([row], SCHEMA.append(pa.field("w", pa.int64())))
    write_deltalake(str(tmp_path / "log"), table, mode="append", partition_by=["day"], schema_mode="merge")
    edited = pipeline_of(place.text().replace("{sum: v}", "{sum: v}, w: {sum: w}"))
    work = replace(place.work(), pipeline=edited)
    assert day_chain_run(work, 0, 3).is_published
    view = work.ledger.view()
    assert verify(work.lake, "late", view).findings == ()
    assert verify(work.lake, "late", as_of_old_runs(view)).findings == ()


@pytest.mark.slow
def test_a_lost_table_of_late_records_is_named_and_made_again(tmp_path: Path) -> None:
    rng = Random(1)
    lake = SmallLake(tmp_path, spec=Spec("tumbling: {size: 70h}", "6h", 0))
    for day in range(3):
        lake.append(rng)
        lake.run(day, day)
    shutil.rmtree(tmp_path / "late" / tables.LATE_RECORDS)
    found = verify(lake.work().lake, "late", lake.view())
    assert ({finding.table for finding in found.findings}, found.mendable) == ({tables.LATE_RECORDS}, (day_text(2),))
    assert mended(lake, 2).attempts
    assert verify(lake.work().lake, "late", lake.view()).findings == ()
    for name in tables.RECORD_TABLES:
        shutil.rmtree(tmp_path / "late" / name, ignore_errors=True)
    found = verify(lake.work().lake, "late", lake.view())
    assert {finding.table for finding in found.findings} == {tables.LATE_RECORDS}
    found = verify(lake.work().lake, "late", as_of_old_runs(lake.view()))
    assert any("has lost all tables of records" in finding.what for finding in found.findings)


@pytest.mark.slow
def test_a_damaged_run_of_a_warm_up_of_mend_is_mended(tmp_path: Path) -> None:
    """No request stores that warm-up, which begins with the time alone."""
    lake = lake_without_old_states(tmp_path, day=3, size="30h")
    before = lake.view().runs.keys()
    assert mended(lake, 3).left == ()
    view = lake.view()
    first, *_ = warmed = [run for run in view.runs.values() if run.result.run_id not in before]
    assert first.result.state_before not in {EMPTY_STATE, *(run.result.state_after for run in view.runs.values())}
    for run in warmed:
        lose(lake, "tallies", run)
        [slice_id] = verify(lake.work().lake, "late", lake.view()).mendable
        assert mend(lake.work(), lake.view().slices[slice_id], replay, who=WHO).left == ()
    assert verify(lake.work().lake, "late", lake.view()).findings == ()


@pytest.mark.slow
@pytest.mark.parametrize("table", ["tallies", "window_state"])
def test_a_damaged_warm_up_run_is_mended_although_those_before_it_were_removed(tmp_path: Path, table: str) -> None:
    rng = Random(1)
    lake = SmallLake(tmp_path)
    for day in range(DAYS):
        lake.append(rng)
        lake.run(day, day)
    lake.spec = Spec("tumbling: {size: 70h}", "6h", 0)
    assert not lake.run(4, 5, warms_up=True).is_published, "the check windows_over_the_border holds it"
    waive_newest(lake.work(), day_text(4), reason="other windows", who="ann")
    assert publish(lake.work(), who="ann").is_published
    lake.now_ms += 5 * DAY_MS
    lake.retention = RetentionGrammar().model_copy(update={"superseded_ms": DAY_MS, "unpublished_ms": DAY_MS})
    cleaned(lake)
    view = lake.view()
    [warmed] = (run for run in view.runs.values() if run.result.slice.slice_id == day_text(3) and not run.is_chain_start
                and run.result.run_id not in view.published.values())  # fmt: skip
    lose(lake, table, warmed)
    assert mended(lake, 3).left == ()
    assert verify(lake.work().lake, "late", lake.view()).findings == ()


@pytest.mark.slow
def test_the_run_that_readers_see_is_mended_although_another_one_cannot_be(tmp_path: Path) -> None:
    rng = Random(1)
    lake = SmallLake(tmp_path)
    for day in range(3):
        lake.append(rng)
        lake.run(day, day)
    superseded = lake.view().published[day_text(1)]
    lake.append(rng, 1)
    assert lake.run(1, 2).is_published
    seen, view = lake.rows(), lake.view()
    shown = view.published[day_text(1)]
    lose(lake, "window_outputs", view.run(superseded))
    lose(lake, "window_outputs", view.run(shown))
    assert {*mended(lake, 1, dry_run=True).refused} == {superseded}
    done = mended(lake, 1)
    assert ([*done.attempts], [*done.refused], len(done.left)) == ([shown], [superseded], 1)
    assert lake.rows() == seen
    with pytest.raises(RequestError, match="or remove these rows, which readers do not see: set `retention`"):
        mended(lake, 1)
    lake.retention = RetentionGrammar().model_copy(update={"superseded_ms": DAY_MS})
    lake.now_ms += 2 * DAY_MS
    cleaned(lake)
    assert verify(lake.work().lake, "late", lake.view()).findings == ()
    assert lake.rows() == seen


@pytest.mark.slow
def test_a_run_of_a_slice_with_other_bounds_than_the_published_one_is_mended(tmp_path: Path) -> None:
    """The slices were days in UTC, and are days of another time zone."""
    place = Place(tmp_path)
    for day in range(3):
        place.put(Put(day, 24 * day + 1), Put(day, 24 * day + 5))
    day_chain_run(place.work(), 0, 3)
    work = place.work(slices="{by: day, timezone: America/New_York}")
    bounds = [parse_bound(work.pipeline, text) for text in ("1970-01-05", "1970-01-08")]
    slices = slices_between(work.pipeline, bounds[0], bounds[1])
    warm_up = restart_before(SESSION, work, slices)
    asked = Asked(from_ms=bounds[0], to_ms=bounds[1], who=WHO, reason="", warm_up=warm_up)
    assert run_request(work, asked, replayed, publish=True).is_published
    view = work.ledger.view()
    old = next(run for run in view.runs.values() if run.result.run_id not in view.published.values())
    slice_id, attempt_id = run_attempt(old)
    [path] = (tmp_path / "late" / "tallies").glob(f"slice_id={slice_id}/attempt_id={attempt_id}/*.parquet")
    path.unlink()
    done = mend(work, view.slices[slice_id], replayed, who=WHO)
    assert ([*done.attempts], done.left) == ([old.result.run_id], ())
    assert verify(work.lake, "late", work.ledger.view()).findings == ()


@pytest.mark.slow
def test_a_part_of_a_state_by_an_attempt_that_does_not_count_is_verified_and_mended(tmp_path: Path) -> None:
    """A candidate of days 3 and 4 is computed while the schedule publishes day 3. Then the candidate is published."""
    rng = Random(2)
    lake = SmallLake(tmp_path, spec=Spec("tumbling: {size: 70h}", "6h", 0))
    for _ in range(5):
        lake.append(rng)
    lake.run(0, 2)
    is_first = True

    def replay_beside_the_schedule(order: ReplayOrder) -> list[RunResult]:
        nonlocal is_first
        results = replay(order)
        if is_first:
            is_first = False
            assert lake.run(3, 3).is_published
        return results

    bounds = lake.slices(3, 3)[0].start_ms, lake.slices(4, 4)[0].end_ms
    asked = Asked(from_ms=bounds[0], to_ms=bounds[1], who=WHO, reason="try", kind=RequestKind.CANDIDATE)
    tried = run_request(lake.work(), asked, replay_beside_the_schedule, staging=Staging(chunk=2), publish=False)
    assert publish(lake.work(), who=WHO, request_id=tried.request_id).is_published
    view = lake.view()
    assert view.head is not None
    part = view.head.checkpoint.earlier[-1]
    counting = view.run(part.run_id)
    assert counting.result.attempt_id != part.attempt_id
    lose(lake, "window_state", replace(counting, result=replace(counting.result, attempt_id=part.attempt_id)))
    assert verify(lake.work().lake, "late", view).mendable == (day_text(3),)
    assert mended(lake, 3).left == ()
    assert verify(lake.work().lake, "late", lake.view()).findings == ()
    lake.append(rng)
    assert lake.run(5, 5).is_published


@pytest.mark.slow
@pytest.mark.parametrize("column", ["day", "arrived"])
def test_slices_of_a_former_spec_over_another_table_are_made_again_from_that_table(tmp_path: Path, column: str) -> None:
    """Defect: they were compared with the table of the file, which none of their runs has read."""
    place = Place(tmp_path)
    for day in range(3):
        place.put(Put(day, 24 * day + 1), Put(day, 24 * day + 5))
    day_chain_run(place.work(), 0, 2)
    copied = DeltaTable(tmp_path / "log").to_pyarrow_table().rename_columns(["k", "at", "v", "seq", column])
    write_deltalake(tmp_path / "other", copied, partition_by=[column])
    text = place.text(slices=f"{{by: {column}}}", lateness="1h").replace("table: log", "table: other")
    work = replace(place.work(), pipeline=pipeline_of(text))
    day_chain_run(work, 2, 3, warms_up=True)
    view, damaged = work.ledger.view(), "1970-01-05"
    next(
        path for path in (tmp_path / "late" / tables.WINDOW_OUTPUTS).rglob("*.parquet") if damaged in str(path)
    ).unlink()
    done = mend(work, view.slices[damaged], replayed, who=WHO)
    assert list(done.attempts) == [view.published[damaged]]
    assert done.left == ()
