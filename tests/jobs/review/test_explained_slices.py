"""The explanation of records with one id, of slices with an older spec, and of windows that a staged slice changes."""

from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from jobs.lake.lake import Lake
from jobs.planning.published_spec import on_published_spec
from jobs.planning.request_context import IfOpen, RequestContext, open_request_context
from jobs.review.explain import Explanation, Locator, explain
from jobs.review.log_search import has_read, records_of
from jobs.review.pages.lineage import slice_files
from jobs.review.pages.record_page import SearchLimits, find, search_scope
from jobs.runs import Sighting
from tests.support.day_chains import Place, Put, run
from tests.support.replays import pipeline_of
from windowlib.errors import LogError


def work_of(
    place: Place, *, more: str = "", lateness: str = "0s", windows: str = "", record_id: str = "seq"
) -> RequestContext:
    """Return the pipeline of a place with ids of records."""
    text = place.text(lateness=lateness).replace(
        "  order: [seq]\n", f"  order: [seq]\n  record_id: {record_id}\n{more}"
    )
    text = text.replace("tumbling: {size: 2h}", windows or "tumbling: {size: 2h}")
    work = open_request_context(pipeline_of(text), Lake(root=str(place.root)), now_ms=lambda: place.now_ms)
    return replace(work, is_alive=lambda _holder: False)


def told(work: RequestContext, record_id: str, locate: Locator | None = None) -> Explanation:
    published, _ = on_published_spec(work)
    return explain(work.lake, published.pipeline, record_id, view=work.ledger.view(), locate=locate)


@pytest.mark.slow
def test_a_record_is_explained_with_the_spec_of_its_slice(tmp_path: Path) -> None:
    place = Place(tmp_path)
    for day in range(4):
        place.put(Put(day, 24 * day + 1), Put(day, 24 * day + 5, 5), Put(day, 24 * day + 3, 2))
    run(work_of(place, lateness="1h"), 0, 2)
    work = work_of(place, more='  where: "v < 4"\n')
    run(work, 2, 4, is_fresh=True)
    old, new, late = (told(work, record_id) for record_id in ("1", "7", "2"))
    assert (old.fate, old.details["fired"]) == ("assigned", ["[1970-01-05 04:00, 06:00)"])
    assert (
        'Slice 1970-01-05 was computed with another spec than the one in force: log.where: (not there) -> ("v" < 4)'
        in (old.sentence)
    )
    assert (new.fate, "another spec" in new.sentence) == ("filtered", False)
    assert late.fate == "late"
    assert "Windows accept records for another 1h (windows.allowed_lateness)" in late.sentence
    assert "Slice 1970-01-05 was computed with another spec" in late.sentence


@pytest.mark.slow
def test_a_window_that_only_a_staged_slice_fired_is_told_as_not_published(tmp_path: Path) -> None:
    place = Place(tmp_path)
    for day in range(3):
        place.put(Put(day, 24 * day + 1), Put(day, 24 * day + 23, 5))
    work = work_of(place)
    run(work, 0, 1)
    run(work, 1, 2, publish=False)
    staged = told(work, "1")
    window = "[1970-01-05 22:00, 1970-01-06 00:00)"
    assert (staged.is_published, staged.details["fired"], staged.details["open"]) == (True, [], [])
    assert staged.details["fired_not_published"] == {window: "1970-01-06"}
    assert staged.sentence.endswith(f"1 window fired in slice 1970-01-06, which is not published: {window}.")
    run(work, 1, 3, if_open=IfOpen.REPLACE)
    published = told(work, "1")
    assert (published.details["fired"], published.details["fired_not_published"]) == ([window], {})


def test_a_session_that_only_a_staged_slice_superseded_is_told_as_not_published(tmp_path: Path) -> None:
    """The late record of the second day extends the session of the first."""
    place = Place(tmp_path)
    place.put(Put(0, 1), Put(0, 20), Put(1, 1.5), Put(1, 26))
    work = work_of(place, lateness="3d", windows="session: {gap: 1h}")
    run(work, 0, 1)
    run(work, 1, 2, publish=False)
    seen, extended = "[1970-01-05 01:00, 02:00)", "[1970-01-05 01:00, 02:30)"
    record = told(work, "0")
    assert (record.details["fired"], record.details["superseded"]) == ([seen], {})
    assert record.details["superseded_not_published"] == {seen: "1970-01-06"}
    assert record.details["fired_not_published"] == {extended: "1970-01-06"}
    assert f"1 window is superseded in slice 1970-01-06, which is not published: {seen}" in record.sentence


def fates(explanation: Explanation) -> list[tuple[str, str | None, object]]:
    """Return (fate, slice, place) of each record that is explained."""
    return [(each.fate, each.slice_id, each.details.get("rank")) for each in (explanation, *explanation.others)]


def test_of_an_id_that_was_delivered_twice_the_first_record_is_explained_too(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.put(Put(0, 1, 100), Put(0, 5, 101), Put(0, 8, 100), Put(1, 25, 102), Put(1, 26, 101))
    work = work_of(place, record_id="v", more="  distinct: {by: [v], within: 7d}\n")
    run(work, 0, 2)
    twice = told(work, "100", lambda _run, _record_id: (0, None))
    assert fates(twice) == [("duplicate", "1970-01-05", 2), ("assigned", "1970-01-05", 0)]
    assert (twice.lines[0], len(twice.lines)) == ("2 records have the id 100.", 3)
    assert "1 window fired: [1970-01-05 00:00, 02:00)" in twice.lines[2]
    assert [each["fate"] for each in twice.to_json()["others"]] == ["assigned"]
    assert fates(told(work, "101")) == [("duplicate", "1970-01-06", 1), ("assigned", "1970-01-05", None)]
    once = told(work, "102")
    assert once.lines == (once.sentence,)
    assert "others" not in once.to_json()
    scope = search_scope(work.ledger.view(), limits=SearchLimits(slices=1))
    assert scope is not None
    page = find(work.lake, work.pipeline, "101", scope=scope).explanation
    assert page is not None
    assert fates(page) == [("duplicate", "1970-01-06", 1), ("assigned", "1970-01-05", None)]


@pytest.mark.slow
def test_records_with_one_id_are_all_explained(tmp_path: Path) -> None:
    """The late record is the second of its slice, so the place of the first one with this id is not told."""
    place = Place(tmp_path)
    place.put(Put(0, 20, 7), Put(0, 2, 7), Put(1, 25, 7), Put(1, 30, 8), *(Put(2, 49, 9) for _ in range(12)))
    work = work_of(place, record_id="v")
    run(work, 0, 2)
    several = told(work, "7", lambda _run, _record_id: (0, None))
    assert fates(several) == [
        ("late", "1970-01-05", 1),
        ("assigned", "1970-01-05", None),
        ("assigned", "1970-01-06", 0),
    ]
    assert several.others[0].details["record"]["seq"] == 0
    run(work, 2, 3)
    many = told(work, "9")
    assert (len(many.others), many.left_out) == (9, 2)
    assert many.lines[0] == "12 records have the id 9; 10 of them are explained."
    assert many.to_json()["left_out"] == 2


def test_a_record_that_came_after_the_run_of_its_slice_is_told_as_not_read(tmp_path: Path) -> None:
    """Also if its file was merged with those of the run since. If their version is gone, the fate is told as unsure."""
    place = Place(tmp_path)
    place.put(Put(0, 1), Put(0, 5, 5))
    work = work_of(place, more='  where: "v < 9"\n')
    run(work, 0, 1)
    place.put(Put(0, 3), Put(0, 4, 10))
    table = DeltaTable(place.root / "log")
    for _ in range(2):
        new, filtered = told(work, "2"), told(work, "3")
        assert [(each.fate, each.is_published) for each in (new, filtered)] == [("not read", False)] * 2
        assert "the run that readers see has not read it" in new.sentence
        assert "`hindcast status late` tells what becomes of the slice" in new.sentence
        old = told(work, "0")
        assert (old.fate, "has changed since its run" in old.sentence) == ("assigned", False)
        table.optimize.compact()
    table.update_incremental()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    for record_id in ("0", "2"):
        unsure = told(work, record_id)
        assert (unsure.fate, "the version of the log that the run read is gone" in unsure.sentence) == ("unknown", True)


def test_records_beside_a_delete_that_nobody_has_accepted_are_looked_up(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.put(Put(0, 1), Put(0, 5, 7))
    work = work_of(place)
    run(work, 0, 1)
    DeltaTable(str(tmp_path / "log")).delete("v = 7")
    place.put(Put(0, 6))
    assert [told(work, record_id).fate for record_id in ("0", "2")] == ["assigned", "not read"]


def test_the_table_that_a_record_is_in_tells_whether_a_run_has_read_it(tmp_path: Path) -> None:
    """Defect: after a restore with `log.history`, the greater version of the lost history was asked, and told nothing.

    The page of the slice listed the files of the new history's version as those that the run had read.
    """
    place = Place(tmp_path)
    place.put(Put(0, 1))
    work = work_of(place)
    run(work, 0, 1)
    place.put(Put(0, 2))
    view = work.ledger.view()
    [slice_] = view.slices.values()
    [read] = view.runs.values()
    lost = Sighting(log=replace(read.result.log, table_id="lost", version=9), is_equal=True)
    both = replace(read, sightings=(lost, *read.sightings))
    [record], [later] = (records_of(work.lake, work.pipeline, name, view=view, only=None) for name in ("0", "1"))
    assert has_read(work.lake, work.pipeline, record, record_id="0", run=both, view=view) is True
    assert has_read(work.lake, work.pipeline, later, record_id="1", run=both, view=view) is False
    assert slice_files(work.lake, work.pipeline, slice_, read=read.result.log).count == 1
    with pytest.raises(LogError, match="has read version 0 of another table or history"):
        slice_files(work.lake, work.pipeline, slice_, read=replace(lost.log, version=0))


def test_of_two_equal_records_nothing_tells_which_one_the_run_has_read(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.put(Put(0, 1))
    work = work_of(place)
    run(work, 0, 1)
    place.put(Put(0, 2))
    assert told(work, "0").fate == "assigned"
    place.count = 0
    place.put(Put(0, 1))
    both = told(work, "0")
    assert [fate for fate, *_ in fates(both)] == ["unknown", "unknown"]
    assert "has fewer records that equal it" in both.sentence


def test_a_late_record_is_explained_although_the_log_is_gone(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.put(Put(0, 20), Put(0, 2))
    work = work_of(place)
    run(work, 0, 1)
    (tmp_path / "log").rename(tmp_path / "moved")
    late = told(work, "1")
    assert (late.fate, late.others) == ("late", ())
    assert "The log could not be searched for other records with this id: " in late.sentence


@pytest.mark.slow
@pytest.mark.parametrize("more", ["", "  columns: {w: v + 100}\n"])
def test_a_late_record_is_found_by_the_column_of_ids_that_the_file_has_now(tmp_path: Path, more: str) -> None:
    """Defect: it was told as assigned, in a window that has fired without it, where a former spec had other ids.

    A derived column is no field of the stored records.
    """
    place = Place(tmp_path)
    for day in range(4):
        place.put(Put(day, 24 * day + 1, 10 + day), Put(day, 24 * day + 5, 20 + day), Put(day, 24 * day + 3, 30 + day))
    run(work_of(place), 0, 2)
    work = work_of(place, record_id="w" if more else "v", more=more)
    run(work, 2, 4, warms_up=True)
    for number in range(4):
        assert told(work, f"{30 + number + 100 * bool(more)}").fate == "late", number
    assert told(work, f"{20 + 100 * bool(more)}").fate == "assigned"
