"""The inserts of a Delta table as a log: no UPDATE, DELETE, MERGE or RESTORE changes a record that was inserted."""

import json
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.lake.inserts_place import InsertsPlace
from jobs.lake.json_lines import json_lines
from jobs.lake.lake import Lake
from jobs.lake.log_match import Match
from jobs.lake.log_rows import find_records
from jobs.pipeline.models.restate import RestateGrammar
from jobs.planning.event_range import event_time_slices
from jobs.planning.restating import propose
from jobs.publishing.accepting import rewrites_of
from jobs.reading.log_places import log_place
from jobs.reading.verified_log import LogVerification, verify_log
from jobs.reading.verify import Span
from jobs.review.log_search import LogRecord, records_of
from tests.support.delta_logs import commits_of
from tests.support.fuzzing import seeds
from tests.support.log_shop import DAY_MS, DAYS, FIRST_MS, SCHEMA, LogShop, Row, records
from tests.support.replays import pipeline_of
from windowlib.errors import LogError, RequestError, SpecError

FEED = {"delta.enableChangeDataFeed": "true"}


class Shop(LogShop):
    """A lake whose log are the inserts of a Delta table. `inserted` is what they should be."""

    def __init__(self, root: Path, form: str = "changes: inserts") -> None:
        super().__init__(root, form)
        self.inserted: list[Row] = []

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(str(self.log))

    def append(self, rows: Sequence[Row], *, feed: bool = True) -> None:
        self.put(rows, configuration=FEED if feed else None)
        self.inserted += rows

    def merge(self, rows: Sequence[Row], chance: random.Random) -> None:
        """Insert some records, and change some others, in one commit."""
        present = self.table.to_pyarrow_table().to_pylist()
        old = [row | {"text": "merged"} for row in chance.sample(present, min(len(present), 2))]
        merge = self.table.merge(_table([*rows, *old]), "s.seq = t.seq", source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
        self.inserted += rows


def _table(rows: Sequence[Row]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=SCHEMA)


def _filled(root: Path) -> Shop:
    shop = Shop(root)
    for day in range(3):
        shop.append(records(random.Random(day), 10 * day, 6, day))
    return shop


def _change(shop: Shop, chance: random.Random, first: int) -> None:
    """Change the table at random; what it inserts has numbers from `first` on."""
    match chance.choice(("append", "update", "delete", "merge", "compact", "restore", "overwrite")):
        case "append":
            shop.append(records(chance, first, chance.randint(1, 4)))
        case "update":
            shop.table.update(updates={"text": "'updated'"}, predicate=f"v % 3 = {chance.randrange(3)}")
        case "delete":
            shop.table.delete(chance.choice(("v % 4 = 1", "v % 4 = 2", "day = '2026-03-01'", "day = '2026-03-02'")))
        case "merge":
            shop.merge(records(chance, first, chance.randint(1, 4)), chance)
        case "compact":
            shop.table.optimize.compact()
        case "overwrite":
            rows = records(chance, first, 2)
            write_deltalake(str(shop.log), _table(rows), mode="overwrite")
            shop.inserted += rows
        case _:
            newest = shop.table.version()
            if newest:
                shop.table.restore(chance.randrange(newest))


@pytest.mark.slow
def test_random_changes_leave_the_runs_of_the_same_appends(tmp_path: Path) -> None:
    for seed in seeds(2):
        chance = random.Random(seed)
        shop, plain = Shop(tmp_path / f"{seed}"), LogShop(tmp_path / f"plain{seed}")
        shop.append(records(chance, 0, 12))
        for number in range(6):
            _change(shop, chance, 100 * (1 + number))
        plain.put(shop.inserted)
        shop.run()
        plain.run()
        assert shop.published() == plain.published()


@pytest.mark.slow
def test_an_update_and_a_delete_change_no_slice_and_an_insert_changes_its_own(tmp_path: Path) -> None:
    shop = _filled(tmp_path)
    assert shop.run().is_published
    before = shop.published()
    shop.table.update(updates={"text": "'x'"}, predicate="day = '2026-03-01'")
    shop.table.delete("day = '2026-03-02'")
    shop.table.delete("seq = 20")
    shop.table.optimize.compact()
    assert shop.changed() == {}
    shop.merge(records(random.Random(9), 100, 2, day=1), random.Random(9))
    assert shop.changed() == {"2026-03-02": Match.CHANGED}
    assert shop.run().is_published
    after = shop.published()
    assert after["2026-03-01"] == before["2026-03-01"]
    assert after["2026-03-02"] != before["2026-03-02"]


@pytest.mark.slow
def test_the_order_of_appending_is_that_of_the_commits(tmp_path: Path) -> None:
    """`order: appended` reads the inserts as it reads the same commits of a table that is only appended to."""
    shop, plain = _filled(tmp_path / "changed"), LogShop(tmp_path / "plain")
    for number in range(3):
        plain.put(shop.inserted[6 * number : 6 * number + 6])
    shop.table.update(updates={"text": "'x'"}, predicate="v % 2 = 0")
    late = records(random.Random(9), 1, 1, day=0)
    shop.append(late)
    plain.put(late)
    for one in (shop, plain):
        one.form += "\norder: appended"
    for one in (shop, plain):
        one.run()
    assert shop.published() == plain.published()


@pytest.mark.slow
def test_distinct_finds_records_that_were_updated_or_deleted(tmp_path: Path) -> None:
    distinct = "distinct: {by: [text], within: 1d}"
    shop = Shop(tmp_path / "changed", f"changes: inserts\n{distinct}")
    plain = LogShop(tmp_path / "plain", distinct)
    for day in range(3):
        rows = [row | {"text": f"t{row['seq'] % 4}"} for row in records(random.Random(day), 10 * day, 6, day)]
        shop.append(rows)
        plain.put(rows)
    shop.table.delete("day = '2026-03-01'")
    shop.merge(records(random.Random(9), 100, 1, day=1), random.Random(9))
    plain.put(shop.inserted[-1:])
    shop.table.update(updates={"text": "'x'"}, predicate="v % 2 = 0")
    found = shop.run()
    assert sum(one.result.counts.duplicate for one in found.runs) > 0
    plain.run()
    assert shop.published() == plain.published()


def test_the_bounds_of_a_file_are_those_of_its_insertedrecords(tmp_path: Path) -> None:
    """Nothing is known of a file that the table does not have any more."""
    shop, last = _filled(tmp_path), FIRST_MS + 3 * DAY_MS
    days = event_time_slices(shop.work, "2026-03-02T03:00..2026-03-03")
    assert (days.from_ms, days.to_ms) == (FIRST_MS + DAY_MS, last)
    log = log_place(Lake(root=str(tmp_path)), shop.work.pipeline).open()
    inserted = {row["at"] for row in shop.inserted}
    assert log.bounds("at").num_rows == 3
    assert {*log.bounds("at")["low"].to_pylist(), *log.bounds("at")["high"].to_pylist()} <= inserted
    shop.table.delete("seq = 12")
    days = event_time_slices(shop.work, "2026-03-02T03:00..2026-03-03")
    assert (days.from_ms, days.to_ms) == (FIRST_MS + DAY_MS, last)
    assert "do not tell the event times of" in days.sentence


def test_no_commit_can_be_accepted(tmp_path: Path) -> None:
    shop = _filled(tmp_path)
    with pytest.raises(RequestError, match="a DELETE or UPDATE of the table changes no slice"):
        rewrites_of(shop.work, shop.work.ledger.view())


def test_a_record_is_found_as_it_was_inserted(tmp_path: Path) -> None:
    shop = _filled(tmp_path)
    shop.merge(records(random.Random(9), 100, 1, day=1), random.Random(9))
    shop.table.update(updates={"v": "-1"}, predicate="true")
    log = log_place(Lake(root=str(tmp_path)), shop.work.pipeline).open()
    for row in shop.inserted:
        assert next(find_records(log, "seq", str(row["seq"])), None) == row


def test_the_files_that_vacuum_has_left_are_searched(tmp_path: Path) -> None:
    shop = Shop(tmp_path, "changes: inserts\nrecord_id: seq")
    for day in range(3):
        shop.append(records(random.Random(day), 10 * day, 6, day))
    work = shop.work
    shop.table.delete("day = '2026-03-02'")
    shop.table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)

    def search(number: int) -> list[LogRecord]:
        return records_of(work.lake, work.pipeline, str(number), view=work.ledger.view(), only=None)

    assert [search(number)[0].slice_id for number in (0, 20)] == ["2026-03-01", "2026-03-03"]
    with pytest.raises(RequestError, match="VACUUM or a person has removed 1 file of it, which cannot be searched"):
        search(10)


def _refusal(shop: Shop) -> str:
    with pytest.raises(LogError) as error:
        shop.run()
    return str(error.value)


def test_a_table_without_a_feed_is_refused(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.append(records(random.Random(1), 0, 3), feed=False)
    assert "has no change data feed" in _refusal(shop)


def test_a_merge_before_the_feed_was_switched_on_is_refused_for_its_slices(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    for day in range(3):
        shop.append(records(random.Random(day), 10 * day, 6, day), feed=False)
    shop.table.update(updates={"text": "'x'"}, predicate="seq = 12")
    present = [row for row in shop.table.to_pyarrow_table().to_pylist() if row["seq"] == 2]
    new = records(random.Random(9), 100, 1, day=0)
    merge = shop.table.merge(_table([*present, *new]), "s.seq = t.seq", source_alias="s", target_alias="t")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    shop.table.alter.set_table_properties(FEED)
    shop.table.update(updates={"text": "'x'"}, predicate="seq = 13")
    refusal = _refusal(shop)
    assert "commit 4 (MERGE) removed or changed records of slice 2026-03-01" in refusal
    assert "cannot be accepted: with `changes: inserts`" in refusal
    assert "accept-rewrite" not in refusal
    assert shop.run(1).is_published


def test_a_slice_whose_files_are_gone_is_refused(tmp_path: Path) -> None:
    shop = _filled(tmp_path)
    shop.merge(records(random.Random(9), 100, 1, day=1), random.Random(9))
    shutil.rmtree(shop.log / "_change_data")
    assert "has removed this file of the change data feed" in _refusal(shop)
    shop = _filled(tmp_path / "vacuumed")
    shop.table.delete("day = '2026-03-02'")
    shop.table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert "slice 2026-03-02" in _refusal(shop)
    assert shop.run(0, 1).is_published


def test_files_that_vacuum_removed_are_no_damage(tmp_path: Path) -> None:
    """They were read when their slices were run. `maintain` would never be without a finding again."""
    shop = _filled(tmp_path)
    shop.merge(records(random.Random(9), 100, 1, day=1), random.Random(9))
    merged = set(shop.table.file_uris())
    shop.append(records(random.Random(8), 200, 2, day=0))
    [kept] = set(shop.table.file_uris()) - merged
    assert shop.run().is_published

    def verified() -> LogVerification:
        return verify_log(shop.work.lake, shop.work.pipeline, shop.work.ledger.view(), span=Span())

    before = verified()
    shop.table.delete("day = '2026-03-02'")
    shop.table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    after = verified()
    assert (before.removed, after.findings) == (0, ())
    assert after.removed > 0
    assert after.files + after.unknown + after.removed == before.files + before.unknown
    assert f"has removed {after.removed} that the table no longer needs" in str(after)
    Path(kept).unlink()
    assert [finding.slice_id for finding in verified().findings] == ["2026-03-01"]


def test_a_file_that_is_added_twice_is_one_file(tmp_path: Path) -> None:
    """Defect: its records were counted twice and read once, and the run ended with an equation that does not close."""
    shop = _filled(tmp_path)
    first = commits_of(shop.log)[0]
    [add] = [line for line in first.read_text().splitlines() if line.startswith('{"add"')]
    (first.parent / f"{3:020}.json").write_text(
        f'{{"commitInfo":{{"operation":"WRITE","timestamp":{FIRST_MS}}}}}\n{add}\n'
    )
    assert [run.result.counts.read for run in shop.run().runs] == [6, 6, 6]


@pytest.mark.parametrize("is_cut", [False, True])
def test_files_with_other_names_of_columns_are_refused(tmp_path: Path, *, is_cut: bool) -> None:
    """Defect: after column mapping was removed, all values of the columns of older files were read as nulls.

    With `is_cut`, log retention has removed the commit with the names.
    """
    shop = Shop(tmp_path)
    for number in range(1 + is_cut):
        shop.append(records(random.Random(number), 8 * number, 4, 0))
    first = commits_of(shop.log)[0]
    entries = json_lines(first.read_bytes())
    plain = json.dumps(next(entry for entry in entries if "metaData" in entry))
    for metadata in (entry["metaData"] for entry in entries if "metaData" in entry):
        schema = json.loads(metadata["schemaString"])
        for number, own in enumerate(schema["fields"]):
            own["metadata"] = {"delta.columnMapping.physicalName": "col-v" if number == 2 else own["name"]}
        metadata["schemaString"] = json.dumps(schema)
        metadata["configuration"]["delta.columnMapping.mode"] = "name"
    first.write_text("\n".join(map(json.dumps, entries)))
    if is_cut:
        DeltaTable(str(shop.log), version=0).create_checkpoint()
        first.unlink()
    removal = {"commitInfo": {"operation": "REMOVE COLUMN MAPPING"}}
    (shop.log / "_delta_log" / f"{1 + is_cut:020}.json").write_text(f"{json.dumps(removal)}\n{plain}")
    if is_cut:
        refused = InsertsPlace(uri=str(shop.log)).open().lost()
        assert sum("the file has columns of the log under other names" in why for why in refused.values()) == 1
        return
    assert "the file has columns of the log under other names" in _refusal(shop)
    shop.append(records(random.Random(2), 4, 4, 1))
    assert shop.run(1, 2).is_published


def test_slices_of_commits_that_are_gone_are_refused(tmp_path: Path) -> None:
    shop = _filled(tmp_path)
    shop.table.create_checkpoint()
    shop.append(records(random.Random(9), 100, 3, day=2))
    for commit in commits_of(shop.log)[:2]:
        commit.unlink()
    assert "Log retention has removed commits of the table before version 2" in _refusal(shop)
    assert shop.run(2).is_published


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("changes: inserts\norder: commits", "does not have; with changes: inserts"),
        ("changes: updates", "changes"),
        ("changes: inserts\nformat: parquet", "has no commits; leave it out"),
    ],
)
def test_what_the_feed_does_not_have_is_refused(tmp_path: Path, lines: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        pipeline_of(Shop(tmp_path, lines).text)


def test_slices_by_a_column_of_times_are_refused(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.put(records(random.Random(1), 0, 3), by=None, configuration=FEED)
    assert "is no partition column; name partition columns in `log.slice.by`, or write" in _refusal(shop)
    assert log_place(Lake(root=str(tmp_path)), pipeline_of(shop.text)).open().table_id.endswith("-inserts")


def test_a_commit_that_is_not_the_one_of_an_earlier_run_is_refused(tmp_path: Path) -> None:
    shop = _filled(tmp_path)
    shop.table.create_checkpoint()
    assert shop.run().is_published
    first = commits_of(shop.log)[0]
    first.write_text(first.read_text("utf-8").replace('"operation":"WRITE"', '"operation":"wRITE"'), "utf-8")
    shop.append(records(random.Random(9), 100, 1, day=1))
    assert "is not the file that an earlier run has read" in _refusal(shop)


def test_a_partition_of_timestamps_has_the_offset_of_utc(tmp_path: Path) -> None:
    """Writers store it without one. A task converts the text of the partition to the type of the column."""
    write_deltalake(
        str(tmp_path / "log"),
        pa.table({"k": [1, 2], "at": pa.array([0, None], pa.timestamp("us", "UTC"))}),
        partition_by=["at"],
        configuration=FEED,
    )
    texts = {file.partition["at"] for file in InsertsPlace(uri=str(tmp_path / "log")).open().files()}
    assert texts == {"1970-01-01 00:00:00.000000Z", None}


@pytest.mark.parametrize(("before", "after"), [("", "changes: inserts"), ("changes: inserts", "")])
def test_the_look_after_an_edit_of_changes_is_of_another_log(tmp_path: Path, before: str, after: str) -> None:
    """Defect: a look at the table counted for its inserts, so `status` told no change that `plan` told."""
    shop = Shop(tmp_path, before)
    for day in range(3):
        shop.append(records(random.Random(day), 10 * day, 6, day))
    assert shop.run().is_published
    work, rule = shop.work, RestateGrammar.model_validate({"mode": "propose"})
    propose(work, rule=rule, who="ann")
    assert work.ledger.view().look is not None
    assert shop.changed() == {}
    edited = Shop(tmp_path, after)
    assert edited.changed() == dict.fromkeys(DAYS, Match.CHANGED)
    propose(edited.work, rule=rule, who="ann")
    assert shop.changed() == {}, "the edit is undone"
