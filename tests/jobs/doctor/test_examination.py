"""`examine` over tables made with deltalake: what is found, and the file that is proposed. No Spark."""

import re
from collections.abc import Callable, Mapping
from datetime import date
from decimal import Decimal
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.doctor.column_roles import TimeRole, Wishes
from jobs.doctor.examination import Examination, Request, examine
from jobs.doctor.finding import Finding, Severity
from jobs.doctor.proposal import yaml_of
from jobs.lake.lake import Lake
from jobs.pipeline.slices import slices_between
from jobs.planning.log_pin import pin_input
from tests.jobs.doctor import tables
from tests.support.delta_logs import (
    clean_commits,
    commits_of,
    map_columns,
    rename_columns,
    track_rows,
    track_rows_later,
)
from tests.support.replays import pipeline_of
from windowlib.errors import LogError, SpecError

NOW_MS = 1_800_000_000_000


def examined(place: Path, wishes: Wishes | None = None, *, sample: int = 10**6) -> Examination:
    request = Request(
        table=place.name,
        uri=str(place),
        lake=Lake(root=str(place.parent)),
        pipelines=place.parent / "pipelines",
        wishes=wishes or Wishes(),
        sample=sample,
    )
    return examine(request, now_ms=NOW_MS)


def found(examination: Examination, subject: str) -> Finding:
    [one] = [one for one in examination.findings if one.subject == subject]
    return one


def has(examination: Examination, subject: str, severity: Severity) -> bool:
    return any(one.subject == subject and one.severity is severity for one in examination.findings)


@pytest.mark.parametrize("kind", tables.RUNNING)
def test_a_file_is_proposed_that_the_grammar_and_the_log_accept(kind: str, tmp_path: Path) -> None:
    place = tmp_path / "clicks"
    tables.RUNNING[kind](place)
    examination = examined(place)
    assert examination.accepted is not None, examination.findings
    assert pipeline_of(examination.accepted.text).name == "clicks_windows", (
        "its tables are not among the files of the log"
    )
    assert not [one for one in examination.findings if one.severity is Severity.ERROR]
    assert examination.sampled == examination.facts.records == 120
    assert examination.accepted.text.isascii()
    assert all(len(line) < 200 for line in examination.accepted.text.splitlines())


def test_the_columns_of_a_usual_table_are_recognised(tmp_path: Path) -> None:
    tables.by_date(tmp_path / "clicks")
    examination = examined(tmp_path / "clicks")
    roles = examination.roles
    assert (roles.key, roles.record_id) == (("user_id",), "click_id")
    assert (roles.event_time, roles.arrival_time) == (TimeRole(column="clicked_at"), TimeRole(column="received_at"))
    assert examination.proposal is not None
    assert examination.proposal.slices.text == "by: dt"
    assert examination.proposal.order.columns == ("received_at", "click_id")
    assert examination.proposal.total == "amount"
    assert examination.proposal.first == "2024-01-01"


def test_the_columns_of_a_kafka_table_are_recognised(tmp_path: Path) -> None:
    tables.kafka(tmp_path / "clicks")
    proposal = examined(tmp_path / "clicks").proposal
    assert proposal is not None
    assert (proposal.roles.key, proposal.roles.partition) == (("key",), "partition")
    assert proposal.roles.event_time == TimeRole(column="event_time")
    assert proposal.roles.arrival_time == TimeRole(column="timestamp")
    assert proposal.order.columns == ("timestamp", "partition", "offset"), "by partition first, most would be late"


@pytest.mark.parametrize(("unit", "per_second"), [("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)])
def test_integers_get_the_unit_that_makes_them_times_of_this_century(
    unit: str, per_second: int, tmp_path: Path
) -> None:
    def change(row: tables.Row) -> tables.Row:
        return {"ts": int(row["clicked_at"].timestamp()) * per_second, "dt": row["dt"]}

    tables.write(tmp_path / "clicks", change, ["dt"])
    assert examined(tmp_path / "clicks").roles.event_time == TimeRole(column="ts", unit=unit)


def test_named_columns_replace_guesses(tmp_path: Path) -> None:
    tables.by_date(tmp_path / "clicks")
    wishes = Wishes(
        key=("click_id",), event_time="received_at", record_id="user_id", order=("clicked_at", "click_id"),
        window_ms=60_000,
    )  # fmt: skip
    examination = examined(tmp_path / "clicks", wishes)
    assert examination.accepted is not None
    log = pipeline_of(examination.accepted.text).log
    assert (log.key, log.event_time.column, log.record_id) == (("click_id",), "received_at", "user_id")
    assert log.order == ("clicked_at", "click_id")
    assert "tumbling: {size: 1m}" in examination.accepted.text


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        (Wishes(key=("user",)), "has no column 'user'.*did you mean 'user_id'"),
        (Wishes(event_time="clicked"), "has no column 'clicked'"),
        (Wishes(event_time="amount"), "do not tell their unit; write amount:ms"),
        (Wishes(order=("nothing",)), "has no column 'nothing'"),
    ],
)
def test_a_wrong_name_is_an_error_that_tells_the_columns(wishes: Wishes, message: str, tmp_path: Path) -> None:
    tables.by_date(tmp_path / "clicks")
    with pytest.raises(SpecError, match=message):
        examined(tmp_path / "clicks", wishes)


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").write_text("x")
    for name, message in {
        "none": "does not exist",
        "directory": "not a Delta table",
        "file": "is a file; name the directory of the table",
    }.items():
        with pytest.raises(LogError, match=message):
            examined(tmp_path / name)


def test_an_empty_table_gets_a_file_without_a_first_slice(tmp_path: Path) -> None:
    tables.empty_with_columns(tmp_path / "clicks")
    examination = examined(tmp_path / "clicks")
    assert examination.sampled == 0
    assert has(examination, "records", Severity.WARNING)
    assert examination.accepted is not None, examination.findings
    assert examination.accepted.range_ms is None
    assert "first" not in examination.accepted.text


def test_a_table_whose_files_were_all_removed_has_no_records(tmp_path: Path) -> None:
    tables.by_date(tmp_path / "clicks")
    DeltaTable(str(tmp_path / "clicks")).delete()
    examination = examined(tmp_path / "clicks")
    assert has(examination, "records", Severity.WARNING)
    assert "removed or changed records" in found(examination, "removed records").text


def test_records_without_a_time_of_arrival_are_in_slices_by_commits(tmp_path: Path) -> None:
    """The nulls are in files with other records, which a DELETE would rewrite."""
    tables.write(tmp_path / "clicks", lambda row: row | {"received_at": row["received_at"] if row["amount"] else None})
    examination = examined(tmp_path / "clicks")
    assert examination.proposal is not None
    assert examination.proposal.slices.kind == "commits"
    note = found(examination, "null slices")
    assert (note.severity, "DELETE" in note.mend) == (Severity.NOTE, False)
    assert re.fullmatch("[1-9] records? without received_at, so slices by received_at are refused", note.text)
    refusal = found(examined(tmp_path / "clicks", Wishes(slice_by=("received_at",))), "refused")
    assert "Append the records of the log to a new table" in refusal.text


def test_records_that_were_moved_out_of_the_null_partition_were_removed_from_no_slice(tmp_path: Path) -> None:
    place = tmp_path / "clicks"
    tables.null_slice(place)
    by_date = Wishes(slice_by=("dt",))
    assert "DELETE … WHERE dt IS NULL" in found(examined(place, by_date), "refused").text
    tables.append(place, [tables.clicks(Random(8))[0][0]], ["dt"])
    DeltaTable(str(place)).delete("dt IS NULL")
    examination = examined(place)
    assert found(examination, "removed records").text == "none of a slice in the 6 commits that were read"
    assert examination.accepted is not None
    assert pipeline_of(examination.accepted.text).log.slice.columns == ("dt",)
    commits = examined(place, Wishes(slice_by=("commits",)))
    assert has(commits, "removed records", Severity.WARNING), "by commits, they had slices"


def _unpartitioned(place: Path) -> None:
    tables.write(place, lambda row: row)


def _delete(place: Path) -> None:
    tables.by_date(place)
    DeltaTable(str(place)).delete("dt = '2024-01-02' AND amount > 5")


def _delete_and_restore_another(place: Path) -> None:
    """Defect: any RESTORE hid the commits before it, and one that takes records away was not told itself."""
    _delete(place)
    tables.append(place, [tables.clicks(Random(8))[0][0]], ["dt"])
    DeltaTable(str(place)).restore(3)


def _delete_and_restore(place: Path) -> None:
    _delete(place)
    DeltaTable(str(place)).restore(2)


def _delete_and_track(place: Path) -> None:
    _delete(place)
    track_rows(place)


def _tracked_later(place: Path) -> None:
    tables.by_date(place)
    track_rows_later(place, Random(1), after=2)


def _forgotten(place: Path) -> None:
    tables.by_date(place)
    clean_commits(place)


def _optimized(place: Path) -> None:
    for _ in range(2):
        tables.by_date(place)
    DeltaTable(str(place)).optimize.compact()


def _twice(place: Path) -> None:
    tables.by_date(place)
    tables.by_date(place)


def _short_retention(place: Path) -> None:
    rows = pa.Table.from_pylist(tables.clicks(Random(7))[0])
    settings = {
        "delta.logRetentionDuration": "interval 2 days",
        "delta.deletedFileRetentionDuration": "interval 1 hours",
    }
    write_deltalake(str(place), rows, partition_by=["dt"], configuration=settings)


def _early_arrivals(place: Path) -> None:
    tables.write(place, lambda row: row | {"received_at": row["clicked_at"].replace(year=2023)}, ["dt"])


def _future(place: Path) -> None:
    tables.write(place, lambda row: row | {"clicked_at": row["clicked_at"].replace(year=2050)}, ["dt"])


def _null_keys(place: Path) -> None:
    tables.write(place, lambda row: row | {"user_id": row["user_id"] if row["amount"] > 3 else None}, ["dt"])


def _skewed(place: Path) -> None:
    tables.write(place, lambda row: row | {"user_id": "big" if row["amount"] > 3 else row["user_id"]}, ["dt"])


def _mapped(place: Path) -> None:
    tables.by_date(place)
    map_columns(place, "name")


def _small_files(place: Path) -> None:
    tables.by_date(place)
    for _ in range(35):
        tables.by_date(place)


def _days_only(place: Path) -> None:
    """The time is a text of a form that no event time has."""
    tables.write(place, lambda row: row | {"clicked_at": f"{row['clicked_at']:%d.%m.%Y}", "received_at": None}, ["dt"])


def _old(place: Path) -> None:
    tables.by_date(place)
    first = tables.clicks(Random(7))[0][0]
    tables.append(place, [first | {"click_id": "old", "dt": date(1970, 1, 1)}], ["dt"])


def _nested(row: tables.Row) -> tables.Row:
    return {"ID": row["click_id"], "payload": {"at": row["clicked_at"]}, "tags": ["a"], "dt": row["dt"]}


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        (Wishes(event_time="payload.at"), "a pipeline file may also name a path into a struct"),
        (Wishes(key=("tags",)), "column 'tags' is array<string>; a key, .* plain values"),
        (Wishes(event_time="payload"), "column 'payload' is struct"),
        (Wishes(record_id="id"), "did you mean 'ID'"),
    ],
)
def test_columns_without_plain_values_are_refused(wishes: Wishes, message: str, tmp_path: Path) -> None:
    tables.write(tmp_path / "clicks", _nested, ["dt"])
    with pytest.raises(SpecError, match=message):
        examined(tmp_path / "clicks", wishes)


def test_a_named_arrival_without_a_time_is_told(tmp_path: Path) -> None:
    tables.by_date(tmp_path / "clicks")
    arrival = found(examined(tmp_path / "clicks", Wishes(arrival_time="click_id")), "arrival")
    assert arrival.severity is Severity.WARNING
    assert "a click_id that is a time" in arrival.text


def test_a_day_is_no_arrival_and_a_decimal_may_be_a_time(tmp_path: Path) -> None:
    def change(row: tables.Row) -> tables.Row:
        at = Decimal(int(row["clicked_at"].timestamp()))
        return {"ts": at, "user_id": row["user_id"], "click_id": row["click_id"], "ingest_date": row["dt"]}

    tables.write(tmp_path / "clicks", change, ["ingest_date"])
    roles = examined(tmp_path / "clicks").roles
    assert (roles.event_time, roles.arrival_time) == (TimeRole(column="ts", unit="s"), None)
    roles = examined(tmp_path / "clicks", Wishes(event_time="ts:s")).roles
    assert roles.arrival_time is None


@pytest.mark.parametrize("key", ["records", "amount_total"])
def test_outputs_of_the_proposed_file_have_other_names_than_its_key(key: str, tmp_path: Path) -> None:
    tables.write(tmp_path / "clicks", lambda row: row | {key: row["user_id"]}, ["dt"])
    accepted = examined(tmp_path / "clicks", Wishes(key=(key,))).accepted
    assert accepted is not None
    assert key not in pipeline_of(accepted.text).aggregates


def _renamed_colon(place: Path) -> None:
    """RENAME COLUMN leaves the names of the directories."""
    tables.colon_in_a_partition(place)
    names = {field.name: field.name for field in DeltaTable(str(place)).schema().fields}
    rename_columns(place, names | {"d:t": "day"}, after=3)


CASES: Mapping[str, tuple[Callable[[Path], None], str, Severity, str]] = {
    "no partition": (_unpartitioned, "pipeline file", Severity.OK, "slice: {by: received_at}"),
    "null slices": (
        tables.null_slice,
        "null slices",
        Severity.NOTE,
        "1 record without dt, so slices by dt are refused",
    ),
    "a delete": (_delete, "removed records", Severity.WARNING, r"commit 3 \(DELETE\)"),
    "a delete and a restore of another commit": (
        _delete_and_restore_another,
        "removed records",
        Severity.WARNING,
        r"commits 3 \(DELETE\), 5 \(RESTORE\) removed",
    ),
    "a delete that was restored": (_delete_and_restore, "removed records", Severity.OK, "^none in the 5 commits"),
    "a delete is refused": (_delete_and_track, "refused", Severity.ERROR, "removed or changed records of slice"),
    "no row tracking": (tables.by_date, "row tracking", Severity.NOTE, "is off"),
    "row tracking": (tables.tracked, "row tracking", Severity.OK, "since the table was created"),
    "row tracking later": (_tracked_later, "row tracking", Severity.NOTE, "switched on later, by commit 4"),
    "a history that is gone": (_forgotten, "history", Severity.NOTE, "commits before 2 are gone"),
    "files that were rewritten": (_optimized, "rewritten files", Severity.WARNING, "^3 files "),
    "an unknown order": (_optimized, "order of commits", Severity.NOTE, "is not known"),
    "duplicates": (_twice, "duplicates", Severity.WARNING, r"120 records \(50 %\)"),
    "short retention": (_short_retention, "log retention", Severity.WARNING, "kept for 48 h|kept for 2 d"),
    "short retention of files": (_short_retention, "file retention", Severity.WARNING, "1 h after"),
    "clocks": (_early_arrivals, "clocks", Severity.WARNING, "100 % of the records have a received_at before"),
    "the future": (_future, "future", Severity.WARNING, "in the future"),
    "null keys": (_null_keys, "invalid records", Severity.WARNING, r"null_key \d+"),
    "a frequent key": (_skewed, "keys", Severity.NOTE, "the most frequent one has 8. %"),
    "mapped columns": (_mapped, "column mapping", Severity.NOTE, r"\(name\)"),
    "small files": (_small_files, "small files", Severity.WARNING, "108 files"),
    "nothing prevents a delete": (tables.by_date, "append only", Severity.NOTE, "nothing prevents"),
    "a colon in a path": (tables.colon_in_a_partition, "paths", Severity.ERROR, "'d:t' has a colon"),
    "a colon in the path of a renamed column": (
        _renamed_colon,
        "paths",
        Severity.ERROR,
        r"'day' has a colon in its name in the files \('d:t'\), also after RENAME COLUMN",
    ),
    "days as event times": (_days_only, "event time", Severity.WARNING, "^no other column .* dt is a date"),
    "a slice of 1970": (_old, "old slices", Severity.WARNING, "the oldest 1970-01-01, is more .* has 19,72. more"),
    "no event time": (tables.no_event_time, "event time", Severity.ERROR, "no column is a time"),
}


@pytest.mark.parametrize("case", CASES)
def test_each_trouble_is_a_finding_with_what_mends_it(case: str, tmp_path: Path) -> None:
    make, subject, severity, text = CASES[case]
    make(tmp_path / "clicks")
    one = next(one for one in examined(tmp_path / "clicks").findings if one.subject == subject)
    assert one.severity is severity, one
    assert re.search(text, one.text), one.text
    if severity in {Severity.WARNING, Severity.ERROR}:
        assert one.mend, "a warning tells what to do"


def test_repeated_ids_are_left_out_by_the_proposed_file(tmp_path: Path) -> None:
    rule = "distinct: {by: [click_id], within: 1d}"
    _twice(tmp_path / "clicks")
    examination = examined(tmp_path / "clicks")
    assert found(examination, "duplicates").mend == f"write in log: {rule}"
    assert examination.proposal is not None
    assert f"\n  {rule}" in yaml_of(examination.proposal)
    assert examination.accepted is not None
    assert pipeline_of(examination.accepted.text).log.distinct is not None


def test_ids_that_are_repeated_in_a_later_slice_need_a_longer_bound(tmp_path: Path) -> None:
    first, *_, last = tables.clicks(Random(7))
    tables.by_date(tmp_path / "clicks")
    tables.append(tmp_path / "clicks", [row | {"dt": last[0]["dt"]} for row in first], ["dt"])
    assert found(examined(tmp_path / "clicks"), "duplicates").mend.endswith("within: 3d}")


def _readings(place: Path, *, copied: bool = False) -> None:
    """Each sensor has one reading a day, so an id of a sensor is unique in each file."""
    for day, rows in enumerate(tables.clicks(Random(7))):
        own = [
            {"sensor_id": f"s{number}", "clicked_at": row["clicked_at"], "v": 1.0, "dt": row["dt"]}
            for number, row in enumerate(rows)
        ]
        tables.append(place, own + (own[:1] if copied and day == 0 else []), ["dt"])


def test_an_id_of_what_the_records_are_about_is_a_key_and_no_record_id(tmp_path: Path) -> None:
    """With `distinct` by it, all records after the first day would be dropped."""
    _readings(tmp_path / "readings")
    examination = examined(tmp_path / "readings")
    assert (examination.roles.key, examination.roles.record_id) == (("sensor_id",), None)
    assert examination.accepted is not None
    assert "distinct" not in examination.accepted.text
    tables.write(tmp_path / "both", lambda row: {"account_id": row["click_id"].partition("-")[2], **row}, ["dt"])
    assert examined(tmp_path / "both").roles.record_id == "click_id", "the next column that can be one"


def test_repetitions_with_another_event_time_are_told_and_left_to_a_person(tmp_path: Path) -> None:
    _readings(tmp_path / "readings", copied=True)
    examination = examined(tmp_path / "readings", Wishes(record_id="sensor_id"))
    assert found(examination, "duplicates").text.endswith("; 80 of them have another event time")
    assert found(examination, "duplicates").mend == "name another column with --record-id"
    assert examination.accepted is not None
    assert pipeline_of(examination.accepted.text).log.distinct is None
    _twice(tmp_path / "clicks")
    tables.append(tmp_path / "clicks", [tables.clicks(Random(7))[0][0] | {"clicked_at": tables.FIRST}], ["dt"])
    examination = examined(tmp_path / "clicks")
    assert examination.roles.record_id == "click_id"
    assert found(examination, "duplicates").mend.startswith("if they are copies, write in log: distinct")
    assert examination.accepted is not None
    assert pipeline_of(examination.accepted.text).log.distinct is None


def _by_commits_of_days(place: Path) -> None:
    """Append one commit a day. Each numbers its records anew, and the last one repeats the first record of the first.

    Records of the last commit were received with those of the first day, so they are behind the other slices.
    """
    days = tables.clicks(Random(7))
    days[-1] += [days[0][0], *(row | {"click_id": f"late {row['click_id']}"} for row in days[0][:6])]
    for rows in days:
        numbered = enumerate(sorted(rows, key=lambda row: str(row["received_at"])))
        own = [
            row | {"seq": number, "received_at": _ms(row), "clicked_at": row["received_at"]} for number, row in numbered
        ]
        tables.append(place, [{name: row[name] for name in row if name != "dt"} for row in own], None)
    for day, commit in enumerate(commits_of(place)):
        text = commit.read_text(encoding="utf-8")
        commit.write_text(
            re.sub(r'"timestamp":\d+', f'"timestamp":{(19_723 + day) * 86_400_000}', text), encoding="utf-8"
        )


def _ms(row: tables.Row) -> int:
    return int(row["received_at"].timestamp() * 1000)


def test_ids_that_are_repeated_in_a_later_slice_of_commits_need_a_longer_bound(tmp_path: Path) -> None:
    _by_commits_of_days(tmp_path / "clicks")
    assert found(examined(tmp_path / "clicks"), "duplicates").mend.endswith("within: 3d}")


@pytest.mark.parametrize("order", ["received_at", "seq"])
def test_columns_order_the_records_of_each_slice_of_commits(order: str, tmp_path: Path) -> None:
    """In the order of the whole log, no record would be late, and the numbers of each commit would have ties."""
    _by_commits_of_days(tmp_path / "clicks")
    examination = examined(
        tmp_path / "clicks", Wishes(order=(order, "click_id") if order == "received_at" else (order,))
    )
    assert examination.accepted is not None, examination.findings
    assert examination.proposal is not None
    assert examination.proposal.slices.text == "by: commits"
    assert examination.measures is not None
    assert examination.measures.delays.histogram()[0].late == 7 / 127


def test_a_refused_table_is_refused_in_the_words_of_a_plan(tmp_path: Path) -> None:
    _delete_and_track(tmp_path / "clicks")
    examination = examined(tmp_path / "clicks")
    assert examination.accepted is None
    tables.by_date(tmp_path / "good" / "clicks")
    good = examined(tmp_path / "good" / "clicks").accepted
    assert good is not None
    assert good.range_ms is not None
    pipeline = pipeline_of(good.text)
    with pytest.raises(LogError) as refusal:
        pin_input(pipeline, Lake(root=str(tmp_path)), slices_between(pipeline, *good.range_ms))
    assert any(one.text == str(refusal.value) for one in examination.findings if one.subject == "refused")


def test_a_sample_reads_no_more_records_than_asked_the_newest_ones(tmp_path: Path) -> None:
    tables.by_date(tmp_path / "clicks")
    examination = examined(tmp_path / "clicks", sample=50)
    assert examination.sampled == 50
    assert examination.accepted is not None
    assert "from the newest 50 of 120 records" in examination.accepted.text


def test_columns_with_ties_are_not_proposed_as_an_order(tmp_path: Path) -> None:
    """Two records of a slice that are equal in all columns have the order of their files and rows."""
    tables.write(
        tmp_path / "clicks", lambda row: {"ts": row["clicked_at"].replace(minute=0, second=0), "dt": row["dt"]}, ["dt"]
    )
    examination = examined(tmp_path / "clicks")
    assert examination.accepted is not None
    assert "order: appended" in examination.accepted.text
