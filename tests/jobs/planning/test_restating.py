"""Published slices whose records have changed: seen by the Delta log alone, proposed, declined, or told why not."""

import cProfile
import json
import pstats
import random
import re
import shutil
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.engine import fingerprints
from jobs.lake.json_lines import json_lines
from jobs.lake.lake import Lake
from jobs.lake.log_match import Match
from jobs.ledger.events import LedgerEvent
from jobs.ledger.removals import Why, removed_event
from jobs.ledger.view import LedgerView, Request
from jobs.orchestration.requests import run_request
from jobs.pipeline.models.restate import RestateGrammar
from jobs.pipeline.slices import slice_at, slice_grid, slices_between
from jobs.planning import changed_slices as looking
from jobs.planning.assessing import Assessed, Restating
from jobs.planning.change_sentences import sentences, told_changes
from jobs.planning.changed_slices import ChangedSlice
from jobs.planning.event_range import event_time_slices
from jobs.planning.request_context import Asked, IfOpen, RequestContext, open_request_context
from jobs.planning.restating import propose, restating
from jobs.planning.standing import standing
from jobs.planning.steps import Ask
from jobs.publishing.accepting import accept_rewrites, chosen_rewrites, rewrites_of
from jobs.publishing.decisions import cancel, resume, rollback
from jobs.publishing.optimistic_check import By, OutdatedDecision
from jobs.reading.verified_log import verify_log
from jobs.reading.verify import Span
from jobs.review.log_search import log_search
from jobs.wall_clock import now_ms
from tests.support.delta_logs import clean_commits, commits_of
from tests.support.fake_replay import PIPELINE, FakeReplayer, append_day, day_ms, sales
from tests.support.log_files import write_checksum_file
from tests.support.log_shop import DAY_MS, FIRST_MS, SCHEMA, LogShop
from windowlib.errors import LogError

DAYS = [f"2024-01-{day:02d}" for day in range(1, 6)]
CHANGES = ["append", "append", "append", "compact", "publish", "stage", "decline", "new day"]


@dataclass
class Shop:
    """A lake with the log of five days, of which the first four are published."""

    root: Path
    now: str = "2024-01-10"
    text: str = PIPELINE
    replayer: FakeReplayer = field(default_factory=FakeReplayer)

    @property
    def work(self) -> RequestContext:
        return open_request_context(sales(self.text), Lake(root=str(self.root)), now_ms=lambda: day_ms(self.now))

    @property
    def log(self) -> Path:
        return self.root / "event_logs" / "sales"

    def run(self, start: str, end: str, *, publish: bool = True) -> str:
        asked = Asked(from_ms=day_ms(start), to_ms=day_ms(end), who="ann", reason="test", if_open=IfOpen.REPLACE)
        return run_request(self.work, asked, self.replayer, publish=publish).request_id

    def propose(self, **rule: object) -> Restating:
        return propose(self.work, rule=RestateGrammar.model_validate(rule), who="schedule")

    def told(self, **rule: object) -> list[str]:
        return list(sentences(self.work, self.propose(**rule)))

    def changed(self) -> list[str]:
        return [one.slice.slice_id for one in standing(self.work, self.work.ledger.view()).changed]

    def change(self, what: str, day: str, key: str) -> None:
        """One step of the property: a change of the log, or what a person does."""
        match what:
            case "append":
                append_day(self.root, day, {key: len(key)})
            case "new day":
                append_day(self.root, "2024-01-08", {key: 1})
            case "compact":
                DeltaTable(str(self.log)).optimize.compact()
            case "decline":
                proposal = restating(self.work, self.work.ledger.view()).proposal
                if proposal is not None:
                    self.decline(proposal)
            case _:
                self.run(day, "2024-01-05", publish=what == "publish")

    def clean(self) -> None:
        """Record that the rows of all runs that readers do not see were removed."""

        def decide(view: LedgerView) -> list[LedgerEvent]:
            unseen = (run.result for run_id, run in view.runs.items() if run_id not in view.published.values())
            removed = {(result.slice.slice_id, result.attempt_id): Why.SUPERSEDED for result in unseen}
            return [removed_event(removed, who="maintain_sales", reason="retention")]

        self.work.ledger.write(decide)

    def decline(self, request: Request) -> None:
        by = By(who="ann", decision_id=self.work.new_id())
        cancel(self.work, request.request_id, reason="known", by=by)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    looking._looked.cache.clear()
    made = Shop(tmp_path)
    for index, day in enumerate(DAYS):
        append_day(tmp_path, day, {"a": 10 + index, "b": 1})
    made.run("2024-01-01", "2024-01-05")
    return made


def proposal_of(found: Restating) -> Request:
    assert found.proposal is not None
    return found.proposal


def test_late_records_of_a_published_slice_are_seen_and_proposed_up_to_the_head(shop: Shop) -> None:
    assert (shop.changed(), shop.told()) == ([], [])
    append_day(shop.root, "2024-01-02", {"late": 5})
    append_day(shop.root, "2024-01-03", {"late": 6})
    assert shop.changed() == ["2024-01-02", "2024-01-03"]
    found = shop.propose()
    request = proposal_of(found)
    assert (request.from_ms, request.to_ms) == (day_ms("2024-01-02"), day_ms("2024-01-05"))
    assert sentences(shop.work, found) == (
        "2 published days changed: 2024-01-02 … 2024-01-03, 4 records then, 6 now",
        f"2024-01-02 … 2024-01-03: proposed as request {request.request_id[:8]}",
    )
    assert request.reason == "2 published days changed: 2024-01-02 … 2024-01-03, 4 records then, 6 now"
    assert request.who == "schedule"
    assert not request.runs
    assert not request.leases


def test_records_of_a_day_that_was_published_empty_are_seen(shop: Shop) -> None:
    shop.run("2024-01-05", "2024-01-08")
    append_day(shop.root, "2024-01-09", {"a": 1})
    assert shop.told() == []
    append_day(shop.root, "2024-01-06", {"a": 1})
    append_day(shop.root, "2024-01-07", {"a": 1, "b": 2})
    assert shop.told()[0] == "2 published days changed: 2024-01-06 … 2024-01-07, 0 records then, 3 now"
    assert list(proposal_of(shop.propose()).changes) == ["2024-01-06", "2024-01-07"]


def test_proposing_twice_writes_once_and_a_newer_change_extends_the_proposal(shop: Shop) -> None:
    append_day(shop.root, "2024-01-03", {"late": 5})
    first = proposal_of(shop.propose())
    version = shop.work.ledger.view().version
    assert proposal_of(shop.propose()).request_id == first.request_id
    assert shop.work.ledger.view().version == version
    append_day(shop.root, "2024-01-02", {"late": 5})
    append_day(shop.root, "2024-01-03", {"later": 5})
    second = proposal_of(shop.propose())
    assert second.request_id == first.request_id
    assert second.from_ms == day_ms("2024-01-02")
    assert second.changes["2024-01-03"].records == 4
    assert len(shop.work.ledger.view().open_requests()) == 1


def test_a_proposal_is_extended_when_the_head_moves_and_closed_when_its_changes_are_published(shop: Shop) -> None:
    append_day(shop.root, "2024-01-03", {"late": 5})
    first = proposal_of(shop.propose())
    shop.run("2024-01-05", "2024-01-06")
    assert proposal_of(shop.propose()).to_ms == day_ms("2024-01-06")
    run = shop.run("2024-01-03", "2024-01-06")
    assert run != first.request_id
    assert shop.changed() == []
    assert shop.propose() == Restating(assessed=())
    assert not shop.work.ledger.view().requests[first.request_id].is_open


def test_a_declined_change_is_proposed_again_only_after_the_log_has_changed_again(shop: Shop) -> None:
    append_day(shop.root, "2024-01-02", {"late": 5})
    shop.decline(proposal_of(shop.propose()))
    assert shop.told()[1] == (
        "2024-01-02: not proposed, because declined by ann: known. To restate it: hindcast run sales --from "
        "2024-01-02 --to 2024-01-05"
    )
    assert told_changes(shop.work, shop.work.ledger.view()).waits == 0
    DeltaTable(str(shop.log)).optimize.compact()
    assert shop.propose().proposal is None
    append_day(shop.root, "2024-01-02", {"later": 5})
    assert list(proposal_of(shop.propose()).changes) == ["2024-01-02"]


def test_a_person_who_saw_an_older_proposal_does_not_decline_the_newer_one(shop: Shop) -> None:
    append_day(shop.root, "2024-01-02", {"late": 5})
    request = proposal_of(shop.propose())
    seen = shop.work.ledger.view()
    append_day(shop.root, "2024-01-03", {"late": 5})
    shop.propose()
    with pytest.raises(OutdatedDecision, match="the restatement was changed: 2 published days changed"):
        cancel(shop.work, request.request_id, reason="no", by=By(who="ann", decision_id="d", seen=seen))


def test_a_compaction_is_no_change_before_and_after_a_look(shop: Shop) -> None:
    append_day(shop.root, "2024-01-02", {"c": 1})
    shop.run("2024-01-02", "2024-01-05")
    DeltaTable(str(shop.log)).optimize.compact()
    assert shop.told() == []
    append_day(shop.root, "2024-01-03", {"c": 1})
    shop.run("2024-01-03", "2024-01-05")
    DeltaTable(str(shop.log)).optimize.compact()
    assert shop.told() == []


def test_a_compaction_whose_commits_are_gone_is_told_and_never_proposed(shop: Shop) -> None:
    append_day(shop.root, "2024-01-02", {"c": 1})
    shop.run("2024-01-02", "2024-01-05")
    DeltaTable(str(shop.log)).optimize.compact()
    append_day(shop.root, "2024-01-08", {"d": 1})
    clean_commits(shop.log)
    told = shop.told()
    assert told[0] == "1 published day changed: 2024-01-02, 3 records then, 3 now"
    assert told[1] == (
        "2024-01-02: not proposed, because its files differ from those that its run read, and the commits that would "
        "tell whether its records differ are gone: `hindcast plan sales --from 2024-01-02 --to 2024-01-05 --verify` "
        "compares the records"
    )
    assert shop.propose().proposal is None


def test_a_look_in_the_ledger_outlives_the_commits_that_it_has_read(shop: Shop) -> None:
    """Retention may remove the commits of a compaction after a look has found that it changed nothing."""
    append_day(shop.root, "2024-01-02", {"c": 1})
    shop.run("2024-01-02", "2024-01-05")
    shop.propose()
    DeltaTable(str(shop.log)).optimize.compact()
    version = DeltaTable(str(shop.log)).version()
    for _ in range(looking.WRITE_AFTER):
        append_day(shop.root, "2024-01-08", {"d": 1})
    assert shop.told() == []
    look = shop.work.ledger.view().look
    assert look is not None
    assert look.version > version
    for commit in (shop.log / "_delta_log").glob("*.json"):
        if int(commit.stem) <= version:
            DeltaTable(str(shop.log)).create_checkpoint()
            commit.unlink()
    looking._looked.cache.clear()
    assert shop.told() == []


def test_a_removal_whose_commit_is_gone_asks_nobody_to_accept_it(shop: Shop) -> None:
    """Defect: a slice that had the records of its run again counted as changed until somebody touched it."""
    append_day(shop.root, "2024-01-02", {"c": 1})
    DeltaTable(str(shop.log)).delete("day = '2024-01-02' and key = 'c'")
    assert "2024-01-02: not proposed, because commit 6 (DELETE) removed" in shop.told()[1]
    append_day(shop.root, "2024-01-08", {"d": 1})
    clean_commits(shop.log)
    assert shop.told() == []


def test_removed_records_are_told_and_neither_they_nor_slices_before_them_are_proposed(shop: Shop) -> None:
    DeltaTable(str(shop.log)).delete("day = '2024-01-03' and key = 'a'")
    append_day(shop.root, "2024-01-02", {"late": 5})
    append_day(shop.root, "2024-01-04", {"late": 5})
    found = shop.propose()
    told = sentences(shop.work, found)
    assert told[0] == "3 published days changed: 2024-01-02 … 2024-01-04, 6 records then, 7 now"
    assert told[1].startswith(
        "2024-01-02: not proposed, because slice 2024-01-03 after it cannot be replayed (commit 5"
    )
    assert told[2] == (
        "2024-01-03: not proposed, because commit 5 (DELETE) removed or changed records, so it cannot be replayed "
        "until a person accepts that (`hindcast accept-rewrite sales --reason …`) or restores the log. If the log "
        "keeps its records for a limited time only, set log.slice.first to the first slice that is to keep them "
        "(docs/reference/logs.md)"
    )
    assert list(proposal_of(found).changes) == ["2024-01-04"]


def test_partitions_that_are_deleted_each_night_have_one_sentence_and_before_the_first_slice_none_asks(
    shop: Shop,
) -> None:
    """Defect: each night added a sentence, and those before `log.slice.first` asked a person to accept the commit."""
    for day in DAYS[:3]:
        DeltaTable(str(shop.log)).delete(f"day = '{day}'")
        shop.propose()
    told = shop.told()
    assert len(told) == 2
    assert "publishes" not in told[0], "no replay is possible"
    assert told[1].startswith(
        "2024-01-01 … 2024-01-03: not proposed, because 3 commits, the newest of them commit 7 (DELETE), removed or "
        "changed records, so it cannot be replayed until a person accepts that"
    )
    bounded = sales(PIPELINE.replace("slice: {by: day}", "slice: {by: day, first: 2024-01-03}"))
    work = replace(shop.work, pipeline=bounded)
    told_then = told_changes(work, work.ledger.view())
    assert told_then.sentences[1] == (
        "2024-01-01 … 2024-01-02: not proposed, because it is before log.slice.first (2024-01-03), so readers keep it "
        "as it was published"
    )
    assert "2024-01-03: not proposed, because commit 7 (DELETE) removed" in told_then.sentences[2]
    append_day(shop.root, "2024-01-01", {"late": 5})
    assert told_changes(work, work.ledger.view()).waits == 0


@pytest.mark.parametrize("compacted", ["2024-01-02", "2024-01-03"])
def test_a_change_is_told_and_not_proposed_if_a_compaction_has_removed_the_order(
    tmp_path: Path, compacted: str
) -> None:
    """Defect: a restatement was proposed that every command refused."""
    work = open_request_context(
        sales(PIPELINE.replace("order: [id]", "order: appended")),
        Lake(root=str(tmp_path)),
        now_ms=lambda: day_ms("2024-01-10"),
    )
    for day in DAYS[:4]:
        append_day(tmp_path, day, {"a": 1})
        append_day(tmp_path, day, {"b": 1})
    run_request(work, Asked(from_ms=day_ms(DAYS[0]), to_ms=day_ms(DAYS[4]), who="ann", reason=""), FakeReplayer())
    DeltaTable(str(tmp_path / "event_logs" / "sales")).optimize.compact([("day", "=", compacted)])
    for day in DAYS[1:4]:
        append_day(tmp_path, day, {"late": 5})
    found = propose(work, rule=RestateGrammar(), who="schedule")
    told = sentences(work, found)
    assert list(proposal_of(found).changes) == [day for day in DAYS[1:4] if day > compacted]
    which = "its records" if compacted == "2024-01-02" else "the records of slice 2024-01-03 after it"
    assert told[1] == (
        "2024-01-02: not proposed, because a commit that rewrites files, such as OPTIMIZE, or log retention has "
        f"removed the order in which {which} were appended (log.order: appended), so readers keep it as it was "
        "published. To replay it, name in log.order the columns that order the records, and run `hindcast adopt "
        "sales --from …` (docs/reference/logs.md)"
    )
    assert found.assessed[0].is_settled
    with pytest.raises(LogError, match="is lost: commit 8"):
        work.plan(work.ledger.view(), Ask(slices=slices_between(work.pipeline, day_ms(DAYS[1]), day_ms(DAYS[4]))))
    DeltaTable(str(tmp_path / "event_logs" / "sales")).delete("day = '2024-01-02' and id = '2024-01-02/b/1'")
    removed = sentences(work, propose(work, rule=RestateGrammar(), who="schedule"))[1]
    assert "(DELETE) removed or changed records, and a commit that rewrites files" in removed
    assert "accept-rewrite" not in removed, "it would be refused"


def test_a_proposal_tells_which_days_it_would_empty_and_its_reason_is_whole(shop: Shop) -> None:
    """Defects: only the sum of the records was told, and the sentence was cut after 300 characters."""
    for day in DAYS[:4]:
        DeltaTable(str(shop.log)).delete(f"day = '{day}'")
        view = shop.work.ledger.view()
        rewrites = rewrites_of(shop.work, view)
        chosen = chosen_rewrites(shop.work, view, rewrites, versions=())
        accept_rewrites(shop.work, rewrites, chosen, reason="x" * 200, who="ann")
    append_day(shop.root, "2024-01-02", {"again": 1})
    found = shop.propose()
    reason = proposal_of(found).reason
    assert reason == sentences(shop.work, found)[0]
    assert reason.startswith(
        "4 published days changed: 2024-01-01 … 2024-01-04, 8 records then, 1 now; a replay publishes 3 days without "
        "a record: 2024-01-01, 2024-01-03 … 2024-01-04; 2 records were removed by the accepted commit 5 ("
    )
    assert reason.endswith("; … and 1 more")


def test_a_log_with_checksum_files_that_was_restored_and_written_to_is_told(tmp_path: Path) -> None:
    """Defect: no digests were stored of such files, so equal numbers of records in other commits were no change."""
    log, backup = tmp_path / "event_logs" / "sales", tmp_path / "backup"
    work = open_request_context(sales(), Lake(root=str(tmp_path)), now_ms=lambda: day_ms("2024-01-10"))

    def append(day: str, key: str) -> None:
        append_day(tmp_path, day, {key: 1})
        for path in log.rglob("*.*"):
            if path.is_file() and not path.name.endswith(".crc"):
                write_checksum_file(path)

    for day in DAYS[:4]:
        append(day, "a")
    shutil.copytree(log, backup)
    run_request(work, Asked(from_ms=day_ms(DAYS[0]), to_ms=day_ms(DAYS[4]), who="ann", reason=""), FakeReplayer())
    append(DAYS[1], "lost")  # only a look sees it
    assert propose(work, rule=RestateGrammar(), who="schedule").assessed
    shutil.rmtree(log)
    shutil.copytree(backup, log)
    append(DAYS[1], "other")
    [sentence] = told_changes(work, work.ledger.view()).sentences
    assert "commit 4 of event log" in sentence
    assert "is not the one that an earlier look at the log has read" in sentence
    assert "`log: {history: NAME}`" in sentence
    days = Asked(from_ms=day_ms(DAYS[0]), to_ms=day_ms(DAYS[4]), who="ann", reason="")
    with pytest.raises(LogError) as refused:  # defect: a run replayed what was changed by the numbers of versions
        run_request(work, days, FakeReplayer())
    assert "`log: {history: NAME}`" in str(refused.value)
    named = work.pipeline.log.model_copy(update={"history": "restored-1"})
    work = replace(work, pipeline=work.pipeline.model_copy(update={"log": named}))
    told = told_changes(work, work.ledger.view())
    assert told.slices == tuple(DAYS[:4])
    assert "the log is another table" in told.sentences[1]


@pytest.mark.parametrize("has_checksums", [True, False])
def test_a_log_that_was_restored_to_before_the_newest_runs_is_told(tmp_path: Path, *, has_checksums: bool) -> None:
    """Defect: slices that were published since the newest look were not compared, although commits were lost since."""
    log, backup = tmp_path / "event_logs" / "sales", tmp_path / "backup"
    work = open_request_context(sales(), Lake(root=str(tmp_path)), now_ms=now_ms)

    def append(day: str, key: str) -> None:
        append_day(tmp_path, day, {key: 1})
        for path in log.rglob("*.*"):
            if has_checksums and path.is_file() and not path.name.endswith(".crc"):
                write_checksum_file(path)

    def replay(first: str, last: str) -> None:
        asked = Asked(from_ms=day_ms(first), to_ms=day_ms(last), who="ann", reason="")
        assert run_request(work, asked, FakeReplayer()).is_published

    for day in DAYS[:3]:
        append(day, "a")
    replay(DAYS[0], DAYS[3])
    assert propose(work, rule=RestateGrammar(), who="schedule").assessed == ()
    shutil.copytree(log, backup)
    append(DAYS[3], "lost")
    replay(DAYS[3], "2024-01-05")
    assert told_changes(work, work.ledger.view()).slices == ()
    shutil.rmtree(log)
    shutil.copytree(backup, log)
    append(DAYS[1], "other")
    told = told_changes(work, work.ledger.view())
    assert "`log: {history: NAME}`" in told.sentences[0]
    named = work.pipeline.log.model_copy(update={"history": "restored-1"})
    work = replace(work, pipeline=work.pipeline.model_copy(update={"log": named}))
    told = told_changes(work, work.ledger.view())
    assert told.slices == tuple(DAYS[:4])
    assert "the log is another table" in told.sentences[1]


@pytest.mark.parametrize("has_checksums", [True, False])
@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_a_log_that_was_restored_and_written_to_is_refused_without_a_look(
    tmp_path: Path, *, has_checksums: bool, has_checkpoint: bool
) -> None:
    """Defect: the slices were current with other records, if checksum files or a checkpoint covered the commits."""
    log, backup = tmp_path / "event_logs" / "sales", tmp_path / "backup"
    work = open_request_context(sales(), Lake(root=str(tmp_path)), now_ms=lambda: day_ms("2024-01-10"))
    asked = Asked(from_ms=day_ms(DAYS[0]), to_ms=day_ms(DAYS[2]), who="ann", reason="")

    def append(day: str, key: str) -> None:
        append_day(tmp_path, day, {key: 1})
        for path in log.rglob("*.*"):
            if has_checksums and path.is_file() and not path.name.endswith(".crc"):
                write_checksum_file(path)

    append(DAYS[0], "a")
    shutil.copytree(log, backup)
    append(DAYS[1], "lost")
    run_request(work, asked, FakeReplayer())
    shutil.rmtree(log)
    shutil.copytree(backup, log)
    append(DAYS[1], "other")
    append(DAYS[2], "a")
    if has_checkpoint:
        DeltaTable(str(log)).create_checkpoint()
    with pytest.raises(LogError, match=(other := r"00000001\.json .* is not the file that an earlier run has read")):
        run_request(work, asked, FakeReplayer())
    view = work.ledger.view()  # defect: `verify` and searches did not look behind a checkpoint
    with pytest.raises(LogError, match=other):
        log_search(work.lake, work.pipeline, view, only=None)
    (finding,) = verify_log(work.lake, work.pipeline, view, span=Span()).findings
    assert re.search(other, finding.what)


def test_a_look_after_a_run_of_a_newer_commit_lists_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit that the run has read is older than the run, so nothing was restored."""
    work = open_request_context(sales(), Lake(root=str(tmp_path)), now_ms=now_ms)
    for day in DAYS[:2]:
        append_day(tmp_path, day, {"a": 1})
        asked = Asked(from_ms=day_ms(day), to_ms=day_ms(day) + 86_400_000, who="ann", reason="")
        assert run_request(work, asked, FakeReplayer()).is_published
        if day == DAYS[1]:
            monkeypatch.setattr(looking, "log_slices", None)
        assert propose(work, rule=RestateGrammar(), who="schedule").assessed == ()


def test_statistics_that_only_some_files_have_are_no_number_of_records(tmp_path: Path) -> None:
    """Defect: after ANALYZE of the other files, the slice had more records than its run, and was replayed in vain."""
    log = tmp_path / "event_logs" / "sales"
    work = open_request_context(sales(), Lake(root=str(tmp_path)), now_ms=lambda: day_ms("2024-01-10"))
    append_day(tmp_path, DAYS[0], {"a": 1, "b": 1})
    append_day(tmp_path, DAYS[0], {"c": 1})
    append_day(tmp_path, DAYS[1], {"a": 1})
    oldest, *_ = commits = commits_of(log)
    entries = json_lines(oldest.read_bytes())
    [add] = [dict(entry["add"]) for entry in entries if "add" in entry]
    without = [{"add": {**add, "stats": None}} if "add" in entry else entry for entry in entries]
    oldest.write_text("".join(json.dumps(entry) + "\n" for entry in without))
    run_request(work, Asked(from_ms=day_ms(DAYS[0]), to_ms=day_ms(DAYS[2]), who="ann", reason=""), FakeReplayer())
    assert work.ledger.view().head is not None
    newest = log / "_delta_log" / f"{len(commits):020d}.json"
    info = {"commitInfo": {"timestamp": 0, "operation": "COMPUTE STATS", "operationParameters": {}}}
    newest.write_text(json.dumps(info) + "\n" + json.dumps({"add": {**add, "dataChange": False}}) + "\n")
    assert propose(work, rule=RestateGrammar(), who="schedule").assessed == ()
    append_day(tmp_path, DAYS[0], {"late": 1})
    [sentence, *_] = told_changes(work, work.ledger.view()).sentences
    assert sentence.endswith(f"1 published day changed: {DAYS[0]}, 3 records then, 4 now")


def test_an_update_that_keeps_the_number_of_records_is_seen(shop: Shop) -> None:
    shop.propose()
    DeltaTable(str(shop.log)).update(updates={"amount": "7"}, predicate="day = '2024-01-03'")
    assert shop.changed() == ["2024-01-03"]
    assert shop.propose().proposal is None


def test_a_restored_log_is_no_change(shop: Shop) -> None:
    table = DeltaTable(str(shop.log))
    version = table.version()
    table.delete("day = '2024-01-03'")
    assert shop.changed() == ["2024-01-03"]
    shop.propose()
    DeltaTable(str(shop.log)).restore(version)
    assert shop.told() == []


def test_the_limits_of_the_pipeline_file_are_told_with_the_command(shop: Shop) -> None:
    append_day(shop.root, "2024-01-01", {"late": 5})
    append_day(shop.root, "2024-01-04", {"late": 5})
    found = shop.propose(at_most_age="6d")
    assert list(proposal_of(found).changes) == ["2024-01-04"]
    assert sentences(shop.work, found)[1] == (
        "2024-01-01: not proposed, because it ended more than 6d ago (restate.at_most_age). To restate it: hindcast "
        "run sales --from 2024-01-01 --to 2024-01-05"
    )
    append_day(shop.root, "2024-01-03", {"late": 5})
    few = shop.propose(at_most_slices=1, at_most_age="6d")
    assert list(proposal_of(few).changes) == ["2024-01-04"], "what was proposed stays proposed"
    assert "2 slices have changed, and restate.at_most_slices is 1" in sentences(shop.work, few)[2]


def test_slices_with_the_same_reason_share_one_sentence(shop: Shop) -> None:
    """A thousand changed days once had a thousand sentences, with the age or the name of each."""
    shop.run("2024-01-05", "2024-01-06")
    for day in ("2024-01-01", "2024-01-02", "2024-01-04"):
        append_day(shop.root, day, {"late": 5})
    assert shop.told(at_most_age="1d")[1:] == [
        "2024-01-01 … 2024-01-02, 2024-01-04: not proposed, because it ended more than 1d ago (restate.at_most_age). "
        "To restate them: hindcast run sales --from 2024-01-01 --to 2024-01-06"
    ]
    head = shop.work.ledger.view().head
    assert head is not None
    change = ChangedSlice(run=head, match=Match.CHANGED, now=head.result.log)
    assessed = (Assessed(change=change, until=head.result.slice, why_not=f"reason {n}") for n in range(1_000))
    assert sentences(shop.work, Restating(assessed=tuple(assessed)))[-1] == "… and 988 more"


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York"])
def test_a_time_zone_that_was_edited_and_not_adopted_changes_no_published_slice(shop: Shop, zone: str) -> None:
    edited = PIPELINE.replace("slice: {by: day}", f"slice: {{by: day, timezone: {zone}}}")
    shop.run("2024-01-05", "2024-01-06")
    work = replace(shop.work, pipeline=sales(edited))
    assert told_changes(work, work.ledger.view()).sentences == ()
    append_day(shop.root, "2024-01-04", {"late": 5})
    assert told_changes(work, work.ledger.view()).sentences == told_changes(shop.work, work.ledger.view()).sentences


def test_off_tells_and_proposes_nothing(shop: Shop) -> None:
    append_day(shop.root, "2024-01-04", {"late": 5})
    told = shop.told(mode="off")
    assert told[0].startswith("1 published day changed: 2024-01-04")
    assert "restate.mode is off" in told[1]
    assert not shop.work.ledger.view().open_requests()


def test_a_change_that_an_open_request_has_replayed_is_not_proposed(shop: Shop) -> None:
    append_day(shop.root, "2024-01-02", {"late": 5})
    staged = shop.run("2024-01-02", "2024-01-05", publish=False)
    found = shop.propose()
    assert found.proposal is None
    assert sentences(shop.work, found)[1] == f"2024-01-02: replayed by request {staged[:8]}"
    append_day(shop.root, "2024-01-02", {"later": 5})
    assert list(proposal_of(shop.propose()).changes) == ["2024-01-02"]


@pytest.mark.parametrize("how", ["declined", "rolled back"])
def test_a_slice_before_one_that_a_person_did_not_want_waits_for_a_person(shop: Shop, how: str) -> None:
    """The proposal of the earlier slice replayed the later one, too, and `mode: auto` published rejected records."""
    append_day(shop.root, "2024-01-03", {"wrong": 7})
    if how == "declined":
        shop.decline(proposal_of(shop.propose()))
    else:
        shop.run("2024-01-03", "2024-01-05")
        rollback(shop.work, shop.work.ledger.view().standing[-1].seq, reason="wrong", who="ann")
        resume(shop.work, reason="known", who="ann")
    append_day(shop.root, "2024-01-02", {"late": 5})
    append_day(shop.root, "2024-01-04", {"late": 5})
    restated = shop.propose()
    assert list(proposal_of(restated).changes) == ["2024-01-04"]
    told = sentences(shop.work, restated)
    why = "declined by ann: known" if how == "declined" else "was rolled back"
    assert told[1].startswith("2024-01-02: not proposed, because slice 2024-01-03 after it would be replayed with it: ")
    assert why in told[1]
    assert told[1].endswith(". To restate it: hindcast run sales --from 2024-01-02 --to 2024-01-05")
    assert told_changes(shop.work, shop.work.ledger.view()).waits == 2
    append_day(shop.root, "2024-01-03", {"right": 1})
    assert list(proposal_of(shop.propose()).changes) == ["2024-01-02", "2024-01-03", "2024-01-04"]
    shop.run("2024-01-02", "2024-01-05")
    assert shop.changed() == []


def test_a_restatement_that_was_rolled_back_is_not_proposed_again(shop: Shop) -> None:
    append_day(shop.root, "2024-01-02", {"late": 5})
    shop.run("2024-01-02", "2024-01-05")
    newest = shop.work.ledger.view().standing[-1].seq
    rollback(shop.work, newest, reason="wrong", who="ann")
    assert shop.changed() == ["2024-01-02"]
    assert shop.propose().proposal is None
    assert "was rolled back" in shop.told()[1]
    shop.clean()
    resume(shop.work, reason="known", who="ann")
    assert shop.propose().proposal is None
    assert "was rolled back" in shop.told()[1]
    append_day(shop.root, "2024-01-02", {"later": 5})
    assert list(proposal_of(shop.propose()).changes) == ["2024-01-02"]


def test_the_requests_are_searched_once_for_any_number_of_changed_slices(shop: Shop) -> None:
    class Requests(dict[str, Request]):
        searches = 0

        def values(self) -> Any:  # noqa: ANN401 - the view of a dict
            self.searches += 1
            return super().values()

    searches = list[int]()
    for day in DAYS[:3]:
        append_day(shop.root, day, {"late": 5})
        view = shop.work.ledger.view()
        requests = Requests(view.requests)
        assert len(restating(shop.work, replace(view, requests=requests)).changed) == len(searches) + 1
        searches.append(requests.searches)
    assert searches == [1, 1, 1]


def test_a_slice_of_an_earlier_chain_is_told(shop: Shop) -> None:
    asked = Asked(from_ms=day_ms("2024-01-03"), to_ms=day_ms("2024-01-05"), who="a", reason="fresh", is_fresh=True)
    append_day(shop.root, "2024-01-03", {"c": 1})
    run_request(shop.work, asked, shop.replayer)
    append_day(shop.root, "2024-01-02", {"late": 5})
    append_day(shop.root, "2024-01-03", {"late": 5})
    found = shop.propose()
    assert found.proposal is None
    told = sentences(shop.work, found)
    assert "its chain ends at 2024-01-02, before the published head 2024-01-04" in told[1]
    assert told[1].endswith("hindcast run sales --from 2024-01-02 --to 2024-01-03")
    assert "it begins a chain" in told[2]
    assert told[2].endswith("hindcast run sales --from 2024-01-03 --to 2024-01-05 --fresh")


def test_a_chain_that_cannot_be_computed_any_more_names_no_run(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Defect: it named a `hindcast run` that is refused, because the file has another spec now."""
    append_day(shop.root, "2024-01-02", {"late": 5})
    monkeypatch.setattr(fingerprints, "SEMANTICS_VERSION", fingerprints.SEMANTICS_VERSION + 1)
    _, told = told_changes(shop.work, shop.work.ledger.view()).sentences
    assert told.startswith("2024-01-02: not proposed, because the published chain of pipeline sales is spec")
    assert told.endswith("or go on with the pipeline file: `hindcast adopt sales`")
    DeltaTable(str(shop.log)).optimize.compact()
    append_day(shop.root, "2024-01-08", {"d": 1})
    clean_commits(shop.log)
    assert "hindcast plan" not in " ".join(told_changes(shop.work, shop.work.ledger.view()).sentences)


def test_another_table_at_the_place_of_the_log_is_seen(shop: Shop) -> None:
    shop.propose()
    shutil.rmtree(shop.log)
    told = told_changes(shop.work, shop.work.ledger.view())
    assert (told.slices, told.waits) == (None, 0)
    assert "does not exist" in told.sentences[0]
    for index, day in enumerate(DAYS):
        append_day(shop.root, day, {"a": 10 + index, "b": 1})
    assert shop.changed() == DAYS[:4]


def test_a_table_that_is_created_again_during_a_look_is_compared_by_the_next_one(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defect: the look was stored with a commit of the first table, and each later look was refused."""
    read = looking._read_now

    def create_again(*arguments: Any) -> object:  # noqa: ANN401 - those of the function
        shutil.rmtree(shop.log)
        for day in DAYS:
            append_day(shop.root, day, {"a": 1})
        return read(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(looking, "_read_now", create_again)
        assert shop.propose().assessed
    assert shop.propose().assessed


def test_a_look_lists_no_file_of_the_table_if_no_commit_touches_a_published_slice(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.propose()
    append_day(shop.root, "2024-01-06", {"a": 1})

    def refuse(*_args: object, **_kwargs: object) -> None:
        raise AssertionError("the files of the table were listed")

    monkeypatch.setattr(looking, "log_slices", refuse)
    assert looking.changed_slices(shop.work, shop.work.ledger.view()) == ()
    append_day(shop.root, "2024-01-04", {"late": 1})
    with pytest.raises(AssertionError, match="listed"):
        looking.changed_slices(shop.work, shop.work.ledger.view())


def test_a_record_of_the_year_9999_costs_no_walk_to_its_slice(tmp_path: Path) -> None:
    shop = LogShop(tmp_path)

    def append(*days: date) -> None:
        rows = [{"k": "a", "at": FIRST_MS, "v": 1, "text": "t", "seq": day.toordinal(), "day": day} for day in days]
        write_deltalake(str(shop.log), pa.Table.from_pylist(rows, SCHEMA), mode="append")

    for day in (1, 2, 3):
        append(date(2026, 3, day))
    shop.run()
    propose(shop.work, rule=RestateGrammar(), who="schedule")
    append(date(2026, 3, 2), date.max)
    with cProfile.Profile() as profile:
        assert shop.changed() == {"2026-03-02": Match.CHANGED}
        asked = event_time_slices(shop.work, "2026-03-01..2026-03-02")
        assert asked.to_ms == FIRST_MS + 3 * DAY_MS
        DeltaTable(str(shop.log)).delete("day = '9999-12-31'")
        found = rewrites_of(shop.work, shop.work.ledger.view())
        [rewrite] = found.rewrites  # the file had records of any days between these two, as far as the log tells
        today = slice_at(slice_grid(shop.work.pipeline), shop.work.ledger.now_ms())
        assert (min(rewrite.slices), max(rewrite.slices)) == ("2026-03-02", today.slice_id)
    assert pstats.Stats(profile).total_calls < 1_000_000  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_looks_that_build_on_each_other_find_what_a_whole_look_finds(shop: Shop, seed: int) -> None:
    """After each plan, every changed slice is proposed, replayed, declined, or told with a reason."""
    chance = random.Random(seed)
    for number in range(14):
        shop.change(chance.choice(CHANGES), chance.choice(DAYS[:4]), f"k{number}")
        if chance.random() < 0.7:
            found = shop.propose()
            view = shop.work.ledger.view()
            assert all(one.request is not None or one.why_not for one in found.assessed)
            named = {one.change.slice.slice_id for one in found.assessed if one.request and one.request.is_proposed}
            assert named == (set() if found.proposal is None else set(found.proposal.changes))
            assert sum(one.is_proposed for one in view.open_requests()) <= 1
        view = shop.work.ledger.view()
        looking._looked.cache.clear()
        quick = looking.changed_slices(shop.work, view)
        whole = looking.changed_slices(shop.work, replace(view, look=None))
        assert [(one.slice, one.match) for one in quick] == [(one.slice, one.match) for one in whole]


def test_a_slice_that_another_one_reads_back_into_is_no_part_of_what_a_later_slice_reads(tmp_path: Path) -> None:
    """Defect: what was seen of a slice for `log.distinct` covers those before it, and counted for the next slice, too.

    After a compaction, the third day was `input changed` by a late record of the first one, which it does not read.
    """
    shop = distinct_shop(tmp_path)
    append_day(tmp_path, "2024-01-01", {"late": 1})
    assert shop.changed() == ["2024-01-01", "2024-01-02"]
    shop.run("2024-01-01", "2024-01-03")
    DeltaTable(str(shop.log)).optimize.compact([("day", "=", "2024-01-03")])
    assert shop.changed() == []


def test_a_removal_that_was_accepted_concerns_no_slice_that_reads_back_into_its_slice(tmp_path: Path) -> None:
    """Defect: only the slices of the commit were looked at again, and the slice after it stayed changed."""
    shop = distinct_shop(tmp_path)
    DeltaTable(str(shop.log)).update({"id": "'other'"}, predicate="day = '2024-01-03' and amount = 2")
    shop.propose()
    assert shop.changed() == ["2024-01-03", "2024-01-04"]
    rewrites = rewrites_of(shop.work, view := shop.work.ledger.view())
    chosen = chosen_rewrites(shop.work, view, rewrites, versions=[])
    accept_rewrites(shop.work, rewrites, chosen, reason="by law", who="ann")
    shop.run("2024-01-03", "2024-01-05")
    assert shop.changed() == []


def distinct_shop(root: Path) -> Shop:
    """Return a shop whose slices read the day before, for `log.distinct`."""
    looking._looked.cache.clear()
    shop = Shop(
        root,
        now="2100-01-01",
        text=PIPELINE.replace("  order: [id]\n", "  order: [id]\n  distinct: {by: [id], within: 1d}\n"),
    )
    for day in DAYS:
        append_day(root, day, {"a": 1})
    append_day(root, "2024-01-03", {"b": 2})
    shop.run("2024-01-01", "2024-01-05")
    return shop
