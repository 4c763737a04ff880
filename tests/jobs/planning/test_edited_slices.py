"""An edited `log.slice`: readers see no record twice and none never, because slices that do not fit are refused."""

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from itertools import pairwise
from pathlib import Path
from random import Random
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.cli.explain import _locator
from jobs.cli.main import hindcast
from jobs.cli.options import run_cli
from jobs.cli.status import _state
from jobs.engine.fingerprints import spec_fingerprint
from jobs.lake.lake import Lake
from jobs.ledger.events import LedgerEvent
from jobs.ledger.looks import looked_event
from jobs.ledger.projection import project
from jobs.ledger.view import LedgerView, RequestKind, RequestState
from jobs.orchestration.requests import run_request
from jobs.pipeline.models.log import SliceGrammar
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import check_range, parse_bound, show_ms, slice_grid, slices_between
from jobs.planning.chains import run_before
from jobs.planning.change_reach import with_reach
from jobs.planning.change_sentences import told_changes
from jobs.planning.changed_slices import changed_slices, look_at_log
from jobs.planning.published_spec import on_published_spec, refuse_lost, why_lost
from jobs.planning.request_context import Asked, RequestContext, open_request_context
from jobs.planning.restating import request_to_continue
from jobs.planning.steps import Ask
from jobs.publishing.decisions import rollback
from jobs.publishing.publishing import publish_request
from jobs.review import position
from jobs.review.explain import explain
from jobs.review.pages.record_search import search_records
from jobs.review.report.collect import collect_view
from jobs.review.report.model import build_model
from jobs.review.report.slice_calendar import months, strips
from jobs.runs import Slice
from tests.jobs.planning.test_plan import coordinates
from tests.support.day_chains import Place, Put, run
from tests.support.fake_replay import PIPELINE, FakeReplayer, day_ms, sales
from tests.support.fuzzing import seeds
from tests.support.ledger_chains import published_chain
from windowlib.errors import RequestError, SpecError

HOUR_MS = 3_600_000
DAYS = [f"2024-01-{day:02d}" for day in range(1, 7)]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A log of six days, cut by a column of times. Each day has a file."""
    for day in DAYS:
        rows = [
            {"id": f"{day} {hour}", "key": "a", "amount": 1, "at_ms": day_ms(day), "ts": datetime.fromisoformat(day)}
            for hour in range(2)
        ]
        write_deltalake(tmp_path / "event_logs" / "sales", pa.Table.from_pylist([*map(_in_utc, rows)]), mode="append")
    return tmp_path


def _in_utc(row: dict[str, object]) -> dict[str, object]:
    assert isinstance(row["ts"], datetime)
    return row | {"day": str(row["ts"].date()), "ts": row["ts"].replace(hour=12, tzinfo=UTC)}


@pytest.mark.parametrize(
    ("cut", "first"),
    [
        ('by: ts, first: "2024-01-03", last: "2024-01-05"', "2024-01-03"),
        ('by: ts, every: 1h, first: "2024-01-03T05:00"', None),
    ],
)
def test_the_first_slice_of_the_file_counts_before_another_edit_is_adopted(
    root: Path, cut: str, first: str | None
) -> None:
    """It tells which slices the schedule replays. On another grid it may be inside a slice of the published chain."""
    work = work_of(root, "by: ts")
    asked = Asked(from_ms=day_ms(DAYS[0]), to_ms=day_ms(DAYS[1]), who="ann", reason="a test")
    assert run_request(work, asked, FakeReplayer()).is_published
    edited = replace(work, pipeline=sales(text_of(cut).replace("{sum: amount}", "{max: amount}")))
    used, [warning] = on_published_spec(edited)
    assert "hindcast adopt" in warning
    assert spec_fingerprint(used.pipeline) == spec_fingerprint(work.pipeline)
    assert used.pipeline.log.slice.first == first
    assert used.pipeline.log.slice.last == (first and "2024-01-05")


def test_a_published_spec_that_this_version_refuses_is_lost(root: Path) -> None:
    """Earlier versions accepted a trigger that can lose records. Only the compiler refuses it, not the grammar."""
    refused = (
        text_of("by: ts").replace("{size: 1d}", "{size: 1d}, trigger: {after_watermark: {}}") + "semantics: beam\n"
    )
    work = replace(work_of(root, "by: ts"), pipeline=sales(refused))
    asked = Asked(from_ms=day_ms(DAYS[0]), to_ms=day_ms(DAYS[1]), who="ann", reason="a test")
    assert run_request(work, asked, FakeReplayer()).is_published
    view, later = (
        work.ledger.view(),
        check_range(work.pipeline, day_ms(DAYS[1]), day_ms(DAYS[2]), now_ms=day_ms("2024-01-09")),
    )
    with pytest.raises(SpecError, match="leftovers: report"):
        with_reach(work.pipeline, work.plan(view, Ask(slices=later)))
    [told] = _state(work)["edited"]
    assert "can lose records" in told, "defect: status told nothing while the file was as it was published"
    assert "go on with a pipeline file that fits: `hindcast adopt sales`" in told
    mended = refused.replace("after_watermark: {}}", "after_watermark: {}}, leftovers: report")
    used, _ = on_published_spec(replace(work, pipeline=sales(mended)))
    assert "this version of Hindcast does not accept that spec any more (request " in why_lost(used, view)
    with pytest.raises(RequestError, match=r"can lose records.* `hindcast adopt sales`"):
        refuse_lost(used, view)


def text_of(cut: str) -> str:
    """Return the pipeline file with an edited `log.slice`."""
    return PIPELINE.replace("slice: {by: day}", f"slice: {{{cut}}}")


def work_of(root: Path, cut: str) -> RequestContext:
    return open_request_context(sales(text_of(cut)), Lake(root=str(root)), now_ms=lambda: day_ms("2024-01-09"))


def replayed(root: Path, cut: str, start: str, end: str, *, by: str = "ts") -> LedgerView:
    """Replay and publish a range with an edited `log.slice`; return the ledger."""
    work = work_of(root, f"by: {by}, {cut}")
    bounds = [parse_bound(work.pipeline, bound) for bound in (start, end)]
    asked = Asked(from_ms=bounds[0], to_ms=bounds[1], who="ann", reason="test", is_fresh=True)
    filled = FakeReplayer(change=lambda result: replace(result, counts=replace(result.counts, read=2, assigned=2)))
    run_request(work, asked, filled)
    return work.ledger.view()


@pytest.mark.parametrize(
    ("published", "edited", "start", "end"),
    [
        ("timezone: Europe/Berlin", "timezone: UTC", "2024-01-03", "2024-01-05"),
        ("timezone: UTC", "timezone: Europe/Berlin", "2024-01-03", "2024-01-05"),
        ("timezone: UTC", "timezone: Asia/Tokyo", "2024-01-01", "2024-01-03"),
        ("timezone: UTC", "timezone: America/New_York", "2024-01-05", "2024-01-06"),
        ("every: 1d", "every: 12h", "2024-01-03", "2024-01-05"),
        ("every: 12h", "every: 1d", "2024-01-01", "2024-01-05"),
    ],
)
def test_slices_that_do_not_fit_the_published_ones_are_refused(
    root: Path, published: str, edited: str, start: str, end: str
) -> None:
    before = replayed(root, published, "2024-01-01", "2024-01-05")
    with pytest.raises(RequestError, match="cuts the log of pipeline sales into other slices than readers see") as info:
        replayed(root, edited, start, end)
    assert "Restore `log.slice`" in str(info.value)
    after = replayed(root, published, "2024-01-05", "2024-01-06")
    assert list(after.published)[: len(before.published)] == list(before.published)


@pytest.mark.slow
def test_no_sequence_of_edits_and_runs_hides_an_hour_or_shows_one_twice(root: Path) -> None:
    """Runs are rolled back and published again, also when readers see slices of another length.

    Defects: slices before an adoption of another length were published beside those of the former one; and the first
    short slice replaced a long one of the same name, so that readers lost the rest of the long one.
    """
    for seed in seeds(6):
        chance, place = Random(seed), root / f"{seed}"
        shutil.copytree(root / "event_logs", place / "event_logs")
        hours, outcomes = set[int](), []
        for _ in range(8):
            every = chance.choice((3, 4, 6, 8, 12))
            work = work_of(place, f"by: ts, every: {every}h")
            view = work.ledger.view()
            undone = [item for item in view.requests.values() if item.state is RequestState.ROLLED_BACK]
            if view.standing and chance.random() < 0.3:
                rollback(work, view.standing[-1].seq, reason="test", who="ann")
                hours = set()
            elif undone and chance.random() < 0.5:
                publish_request(work, chance.choice(undone).request_id, who="ann")
            else:
                bounds = sorted(chance.sample(range(0, 61, every), 2))
                at = [show_ms(slice_grid(work.pipeline), day_ms(DAYS[0]) + bound * HOUR_MS) for bound in bounds]
                try:
                    replayed(place, f"every: {every}h", *at)
                except RequestError as error:
                    outcomes.append("tzdata" in str(error))
            shown = [work.ledger.view().slices[name] for name in work.ledger.view().published]
            assert all(one.end_ms <= other.start_ms for one, other in pairwise(shown)), (seed, shown)
            assert hours <= (hours := {*hours_of(shown)}), (seed, shown)
        assert not any(outcomes), "no time zone is part of it"


def test_the_run_before_a_slice_is_found_among_published_slices_that_overlap(root: Path) -> None:
    """Earlier versions have published such slices. A plan and the rules of publication take the same run."""
    for seed in seeds(20):
        chance, events, shown = Random(seed), list[LedgerEvent](), dict[str, Slice]()
        pipelines = [work_of(root, f"by: ts{every}").pipeline for every in ("", ", every: 12h", ", every: 6h")]
        for number, pipeline in enumerate(pipelines):
            every = slices_between(pipeline, day_ms(DAYS[0]), day_ms(DAYS[5]))
            chosen = [one for one in every if one.slice_id not in shown and chance.random() < chance.choice((0.2, 0.9))]
            shown |= {one.slice_id: one for one in chosen}
            chain = published_chain(pipeline, chosen, log=coordinates())
            events += [replace(event, request_id=str(number)) for event in chain]
        view = project([replace(event, seq=seq) for seq, event in enumerate(events, start=1)], version=len(events))
        for pipeline in pipelines:
            for one in slices_between(pipeline, day_ms(DAYS[0]), day_ms(DAYS[5])):
                ending = [other for other in shown.values() if other.end_ms == one.start_ms]
                nearest = min(ending, key=lambda other: abs(length_ms(other) - length_ms(one)), default=None)
                run = run_before(view, one)
                assert (None if run is None else run.result.slice) == nearest, (seed, one)


def hours_of(slices: Sequence[Slice]) -> Iterator[int]:
    return (hour for slice_ in slices for hour in range(slice_.start_ms // HOUR_MS, slice_.end_ms // HOUR_MS))


def length_ms(slice_: Slice) -> int:
    return slice_.end_ms - slice_.start_ms


def test_a_cut_of_longer_slices_follows_the_published_head_where_one_of_them_begins(root: Path) -> None:
    """Defect: the slice before was looked up by its name, which a shorter one has."""
    replayed(root, "every: 6h", "2024-01-01T00", "2024-01-01T12")
    view = replayed(root, "every: 12h", "2024-01-01T12", "2024-01-02T00")
    assert [*view.published] == ["2024-01-01T00", "2024-01-01T06", "2024-01-01T12"]
    work = work_of(root, "by: ts, every: 12h")
    late = {"id": "late", "key": "a", "amount": 1, "at_ms": day_ms(DAYS[0]), "ts": datetime(2024, 1, 1, 7, tzinfo=UTC)}
    write_deltalake(root / "event_logs" / "sales", pa.Table.from_pylist([late | {"day": DAYS[0]}]), mode="append")
    told = told_changes(work, view)
    assert told.slices == ("2024-01-01T06",)
    assert "slice 2024-01-01T06 was published before `log.slice` was edited, so readers keep it" in told.sentences[1]
    assert "hindcast run" not in told.sentences[1]


@pytest.mark.parametrize("end", ["2024-01-01T06", "2024-01-01T18"])
def test_a_shorter_slice_does_not_replace_a_longer_one_of_its_name(root: Path, end: str) -> None:
    """Defect: it was published, and readers lost the records of the other half."""
    before = replayed(root, "every: 12h", "2024-01-01T00", "2024-01-03T00")
    with pytest.raises(RequestError, match="Readers would see records twice, or never"):
        replayed(root, "every: 6h", "2024-01-01T00", end)
    after = replayed(root, "every: 6h", "2024-01-01T00", "2024-01-03T00")
    assert {*hours_of([*after.slices.values()])} == {*hours_of([*before.slices.values()])}


@pytest.mark.parametrize(
    ("former", "new", "to", "told"),
    [
        ("every: 6h", "every: 1d", "2024-01-02T12", "and when readers see the slices up to 2024-01-03, run"),
        ("every: 1d", "every: 6h", "2024-01-03", "Cancel it, and run"),
    ],
)
def test_slices_that_the_schedule_has_overtaken_are_not_published_beside_those_of_another_length(
    root: Path, former: str, new: str, to: str, told: str
) -> None:
    """Defect: an adoption that was staged was published although its bound is inside a slice that readers see."""
    replayed(root, former, "2024-01-01", "2024-01-02")
    work = work_of(root, f"by: ts, {new}")
    end_ms = day_ms("2024-01-03") + (6 * HOUR_MS if new == "every: 6h" else 0)
    asked = Asked(from_ms=day_ms("2024-01-02"), to_ms=end_ms, who="ann", reason="test", is_fresh=True)
    staged = run_request(work, asked, FakeReplayer(), publish=False)
    scheduled = replace(asked, to_ms=day_ms(to), kind=RequestKind.SCHEDULED, is_fresh=False)
    assert run_request(work_of(root, f"by: ts, {former}"), scheduled, FakeReplayer()).is_published
    before = work.ledger.view()
    attempt = publish_request(work, staged.request_id, who="ann")
    assert not attempt.is_published
    assert "they would see records twice, or never" in attempt.why
    assert attempt.why.endswith(f"{told} `hindcast adopt sales`")
    assert work.ledger.view().published == before.published


@pytest.mark.parametrize("rules", [("Etc/GMT+4", "Etc/GMT+3"), ("Etc/GMT+3", "Etc/GMT+4")])
def test_an_update_of_the_time_zone_rules_counts_no_hour_twice_or_never(
    root: Path, monkeypatch: pytest.MonkeyPatch, rules: tuple[str, str]
) -> None:
    """The file, and so the spec, is the same. The day after the head, as the schedule takes it, may be refused."""

    def published(rule: str, start: str, end: str) -> LedgerView:
        monkeypatch.setattr(SliceGrammar, "zone", property(lambda _: ZoneInfo(rule)))
        work = open_request_context(sales(text), Lake(root=str(root)), now_ms=lambda: day_ms("2024-01-09"))
        bounds = [parse_bound(work.pipeline, bound) for bound in (start, end)]
        run_request(work, Asked(from_ms=bounds[0], to_ms=bounds[1], who="ann", reason="test"), FakeReplayer())
        return work.ledger.view()

    def edges(view: LedgerView) -> list[int]:
        slices = [view.run(run_id).result.slice for run_id in view.published.values()]
        assert [view.slices[slice_.slice_id] for slice_ in slices] == slices
        assert all(one.end_ms == other.start_ms for one, other in pairwise(slices))
        return [slices[0].start_ms, slices[-1].end_ms]

    text = PIPELINE.replace("slice: {by: day}", "slice: {by: ts, timezone: America/Asuncion}")
    before = published(rules[0], "2024-01-01", "2024-01-05")
    with pytest.raises(
        RequestError, match=r"An update of tzdata has moved the edge: replay 2024-01-04 in the same req"
    ):
        published(rules[1], "2024-01-05", "2024-01-06")
    assert edges(published(rules[0], "2024-01-01", "2024-01-05")) == edges(before)
    after = edges(published(rules[1], "2024-01-01", "2024-01-06"))
    assert [new - old for new, old in zip(after, edges(before), strict=True)] == [
        (hours := int(rules[1][-1]) - int(rules[0][-1])) * HOUR_MS, (24 + hours) * HOUR_MS
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("published", "edited", "start", "end"),
    [
        ("timezone: Europe/Berlin", "timezone: UTC", "2024-01-01", "2024-01-05"),
        ("timezone: UTC", "timezone: Asia/Tokyo", "2024-01-01", "2024-01-05"),
        ("every: 1d", "every: 12h", "2024-01-05", "2024-01-06"),
        ("every: 12h", "every: 1d", "2024-01-05", "2024-01-06"),
    ],
)
def test_slices_that_replace_all_published_ones_or_follow_them_are_published(
    root: Path, published: str, edited: str, start: str, end: str
) -> None:
    replayed(root, published, "2024-01-01", "2024-01-05")
    view = replayed(root, edited, start, end)
    slices = [view.run(run_id).result.slice for run_id in view.published.values()]
    assert all(one.end_ms == other.start_ms for one, other in pairwise(slices))
    assert [view.slices[slice_.slice_id] for slice_ in slices] == slices
    work = open_request_context(sales(), Lake(root=str(root)), now_ms=lambda: day_ms("2024-01-09"))
    rollback(work, view.standing[-1].seq, reason="test", who="ann")
    view = work.ledger.view()
    slices = [view.run(run_id).result.slice for run_id in view.published.values()]
    assert [view.slices[slice_.slice_id] for slice_ in slices] == slices


@pytest.mark.slow
@pytest.mark.parametrize(("published", "edited"), [("every: 1d", "every: 12h"), ("every: 12h", "every: 1d")])
def test_the_slices_and_the_records_of_both_cuts_are_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], published: str, edited: str
) -> None:
    """The report has no holes between them, and each record is in the slice that readers see."""
    rows = [
        {"id": f"{day} {hour}", "key": "a", "amount": 1, "at_ms": day_ms(day), "day": date.fromisoformat(day)}
        | {"hour": hour}
        for day in DAYS
        for hour in (1, 13)
    ]
    log = str(tmp_path / "event_logs" / "sales")
    write_deltalake(log, pa.Table.from_pylist(rows), partition_by=["day", "hour"])
    replayed(tmp_path, published, DAYS[0], DAYS[4], by="[day, hour]")
    view = replayed(tmp_path, edited, DAYS[4], "2024-01-07", by="[day, hour]")
    seen = [view.slices[slice_id] for slice_id in view.published]
    work = work_of(tmp_path, f"by: [day, hour], {edited}")
    for row in rows:
        at_ms = day_ms(str(row["day"])) + int(str(row["hour"])) * 3_600_000
        [own] = [slice_.slice_id for slice_ in seen if slice_.start_ms <= at_ms < slice_.end_ms]
        told = explain(work.lake, work.pipeline, str(row["id"]), view=view)
        assert (told.slice_id, told.fate) == (own, "assigned")
        found = search_records(work.lake, work.pipeline, view, part=str(row["id"]), seconds=60).only(str(row["id"]))
        assert found is not None
        assert found.slice_id == own
    model = build_model(collect_view(work.lake, work.pipeline, view))
    assert [line.slice for line in model.lines] == seen
    assert model.headline == f"All {len(seen)} slices published"
    assert (months(model), len(strips(model))) == ((), 1)
    files = tmp_path / "pipelines"
    files.mkdir()
    (files / "sales.yaml").write_text(text_of(f"by: [day, hour], {edited}"), encoding="utf-8")
    for slice_id in [slice_.slice_id for slice_ in seen if slice_.day]:  # the others have no rows
        options = ("--slice", slice_id, "--json", "--lake", str(tmp_path), "--pipelines", str(files))
        assert run_cli(hindcast, ["show", "sales", *options]) == 0
        shown = [json.loads(line)["slice_id"] for line in capsys.readouterr().out.splitlines()]
        assert shown == [slice_id]


@pytest.mark.slow
def test_slices_of_a_former_spec_are_compared_as_their_runs_have_read_them(tmp_path: Path) -> None:
    """Defect: after `log.distinct` was adopted, slices before the border were told as changed, which were not."""
    place = Place(tmp_path)
    for day in range(4):
        place.put(Put(day, 24 * day + 1), Put(day, 24 * day + 5))
    run(place.work(), 0, 2)
    text = place.text().replace("  order: [seq]\n", "  order: [seq]\n  distinct: {by: [seq], within: 2d}\n")
    work = replace(place.work(), pipeline=sales(text))
    run(work, 2, 4, warms_up=True)

    def changed() -> list[str]:
        return [change.slice.slice_id for change in changed_slices(work, work.ledger.view())]

    assert changed() == []
    place.put(Put(0, 2))
    assert changed() == ["1970-01-05", "1970-01-07"], "the third day looks for records of the first one, not the second"

    def stored() -> bool:
        looked = look_at_log(work, work.ledger.view())
        assert looked.look is not None
        look = looked.look
        work.ledger.write(lambda view: [looked_event(look, view.look)])
        return looked.is_due

    assert stored()
    work, before = replace(work, pipeline=sales(text.replace("{by: day}", "{by: day, first: 1970-01-07}"))), work
    assert changed() == ["1970-01-05", "1970-01-07", "1970-01-08"], "the fourth day looked for records of the second"
    assert [stored(), stored()] == [True, False], "defect: each look with another first slice was a new one"
    assert changed() == ["1970-01-05", "1970-01-07", "1970-01-08"]
    work = before
    assert changed() == ["1970-01-05", "1970-01-07"], "defect: the fourth day stayed changed"


@pytest.mark.slow
def test_a_look_knows_which_slices_the_runs_of_a_former_spec_have_read(tmp_path: Path) -> None:
    """Defect: after `log.distinct` had been adopted away, a look that built on another one left the second day out."""
    place = Place(tmp_path)
    for day in range(4):
        place.put(Put(day, 24 * day + 1), Put(day, 24 * day + 5))
    text = place.text().replace("  order: [seq]\n", "  order: [seq]\n  distinct: {by: [seq], within: 1d}\n")
    run(replace(place.work(), pipeline=sales(text)), 0, 2)
    work = place.work()
    run(work, 2, 4, warms_up=True)
    looked = look_at_log(work, work.ledger.view())
    assert looked.look is not None
    look = looked.look
    work.ledger.write(lambda view: [looked_event(look, view.look)])
    place.put(Put(0, 2))
    view = work.ledger.view()
    for each in (view, replace(view, look=None)):
        changed = [change.slice.slice_id for change in changed_slices(work, each)]
        assert changed == ["1970-01-05", "1970-01-06"]


@pytest.mark.slow
def test_slices_of_a_former_spec_whose_slice_column_the_log_no_longer_has_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defect: after the adoption of a table with other columns, `status` was refused, because of those of before."""
    place = Place(tmp_path)
    for day in range(4):
        place.put(Put(day, 24 * day + 1))
    run(place.work(), 0, 2)
    place.put(Put(0, 3))
    staged = run(place.work(), 0, 1, publish=False)
    renamed = DeltaTable(tmp_path / "log").to_pyarrow_table().rename_columns(["k", "at", "v", "seq", "arrived"])
    write_deltalake(tmp_path / "other", renamed, partition_by=["arrived"])
    text = place.text(slices="{by: arrived}").replace("table: log", "table: other")
    work = replace(place.work(), pipeline=sales(text))
    run(work, 2, 4, warms_up=True)
    changed = changed_slices(work, work.ledger.view())
    assert [(change.slice.slice_id, bool(change.other_log)) for change in changed] == [
        ("1970-01-05", True),
        ("1970-01-06", True),
    ]
    continued, _ = request_to_continue(work, staged.request_id)
    assert continued.pipeline.log.table == "log", "defect: it replayed its slices with the records of the other table"
    tables = []

    def locate(_session: object, spec: Pipeline, *_: object, **_named: object) -> tuple[int, None]:
        tables.append(spec.log.table)
        return 0, None

    monkeypatch.setattr(position, "locate", locate)
    view = work.ledger.view()
    for name in ("1970-01-05", "1970-01-07"):
        _locator(work, view=view, master=None)(view.run(view.published[name]), "0")
    assert tables == ["log", "other"], "defect: it searched the other table for a record of the former one"
