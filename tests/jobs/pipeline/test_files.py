"""Pipeline files: what is read, and the errors of files that are not valid."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.pipeline.files import (
    build_pipeline,
    load_all,
    load_file,
    load_pipeline,
    parse_pipeline,
    pipeline_from_json,
    pipeline_to_json,
)
from jobs.pipeline.log_schema import validate_against_schema
from jobs.pipeline.models.pipeline import Pipeline
from tests.support.places import ROOT
from windowlib.errors import SpecError

PIPELINES = ROOT / "pipelines"
FLIGHTS = (PIPELINES / "flights.yaml").read_text()
SHIPPED = ["airports_daily", "carriers", "clicks_live", "flights", "rotations"]
COLUMNS = {
    "flight_id": "string", "carrier": "string", "flight": "int", "tailnum": "string", "origin": "string",
    "dest": "string", "departed_at": "bigint", "reported_at": "bigint", "dep_delay": "double", "arr_delay": "double",
    "air_time": "double", "distance": "double", "ingest_date": "date",
}  # fmt: skip


def test_the_shipped_pipelines_are_valid_and_those_of_flights_fit_their_log() -> None:
    files = load_all(PIPELINES)
    assert [pipeline.name for pipeline in files.good] == SHIPPED
    assert files.broken == ()
    for pipeline in files.good:
        if pipeline.log.table == "event_logs/flights":
            validate_against_schema(pipeline, COLUMNS)


def test_a_file_is_read_into_its_model() -> None:
    flights = load_pipeline("flights", PIPELINES)
    assert flights.windows is not None
    assert flights.windows.sliding is not None
    assert (flights.windows.sliding.size_ms, flights.windows.sliding.slide_ms) == (3_600_000, 900_000)
    assert flights.windows.assigner is flights.windows.sliding
    assert flights.windows.allowed_lateness_ms == 1_800_000
    assert flights.watermark is not None
    assert flights.watermark.out_of_orderness_ms == 21_600_000
    assert flights.log.key_columns == ("origin",)
    assert flights.aggregates["delay_total"].column == "dep_delay"
    assert flights.aggregates["flights"].column is None
    assert flights.max_parallelism == 128
    assert flights.source.endswith("pipelines/flights.yaml")


@pytest.mark.parametrize("name", SHIPPED)
def test_a_pipeline_survives_json(name: str) -> None:
    pipeline = load_pipeline(name, PIPELINES)
    text = pipeline_to_json(pipeline)
    assert pipeline_to_json(pipeline_from_json(text, source="ledger")) == text
    assert list(pipeline_from_json(text, source="ledger").aggregates) == list(pipeline.aggregates)


def test_a_stored_spec_is_validated_once_for_all_requests_that_have_it() -> None:
    text = pipeline_to_json(load_pipeline(SHIPPED[0], PIPELINES))
    first, second = (pipeline_from_json(text, source=source) for source in ("request 1", "request 2"))
    assert first.log is second.log
    assert (first.source, second.source) == ("request 1", "request 2")
    for source in ("request 1", "request 2"):
        with pytest.raises(SpecError, match=f"^{source}: expected JSON"):
            pipeline_from_json("no JSON", source=source)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("slide: 15m", "slide: 0", "windows.sliding.slide: must be longer than 0, found 0"),
        ("first: 2013-01-01", "first: 0001-01-01", "log.slice.first: '0001-01-01' is outside of 0001-01-04 to 9999-"),
        ("last: 2014-01-01", "last: 9999-12-31", "log.slice.last: '9999-12-31' is outside of 0001-01-04 to 9999-12-28"),
        ("first: 2013-01-01", "first: 2013-02-30", "log.slice.first: expected a date such as 2013-02-08"),
        ("timezone: UTC", f"timezone: {'A' * 6_000}", f"unknown time zone '{'A' * 200}…'; write a name"),
        ('"0 6 * * *"', '"0 0 30 2 *"', "schedule: '0 0 30 2 *' never runs: day of month 30 is in none of its months"),
        ("owner: operations", 'owner: "a\\eb"', "owner: must not have control characters, found 'a\\x1bb'"),
        ("owner: operations", f"owner: {'x' * 201}", "owner: string should have at most 200 characters"),
        ("owner: operations", 'owner: "a\\0b"', "owner: must not have control characters"),
        ("size: 1h", "size: 0s", "windows.sliding.size: must be longer than 0, found '0s'"),
        (
            "slide: 15m",
            "slyde: 15m",
            "unknown key 'slyde'; allowed keys here: size, slide, offset; did you mean 'slide'?",
        ),
        ("slide: 15m", "slide: 15min", "unknown unit 'min' in '15min'; allowed: ms, s, m, h, d"),
        ("slide: 15m", "slide: 15", "15 has no unit"),
        ("slide: 15m", "slide: -15m", "'-15m' is not a duration"),
        ("slide: 15m", "slide: 1ms, offset: 5x", "windows.sliding.offset: unknown unit 'x'"),
        ("size: 1h, slide: 15m", "size: 400d, slide: 1ms", "every record would be in 34,560,000,000 windows"),
        (
            "unit: ms}      #",
            "unit: minutes}  #",
            "log.event_time.unit: unknown unit 'minutes'; allowed: s, ms, us, ns",
        ),
        ("  sliding:", "  session: {gap: 1h}\n  sliding:", "windows: needs exactly one kind of window"),
        ("  sliding:", "  trigger: {}\n  sliding:", "windows.trigger: needs exactly one kind of trigger"),
        ("  sliding:", "  storm: {}\n  sliding:", "windows.storm.length: is missing"),
        (
            "sliding: {size: 1h, slide: 15m}",
            "session: {gap: {colum: x}}",
            "windows.session.gap.colum: unknown key 'colum'; allowed keys here: fixed, column, unit, function; did",
        ),
        ("  sliding:", "  time: processing\n  sliding:", "windows: with time: processing no record is late"),
        ("delay_total:", "window_start:", "aggregate 'window_start' has the name of a column of Hindcast's own"),
        ("delay_total:", "RUN_ID:", "aggregate 'RUN_ID' has the name of a column of Hindcast's own"),
        ("delay_total:", "acc_x:", "aggregate 'acc_x' begins with acc_ or __, like columns of Hindcast's own"),
        ("delay_total:", "origin:", "aggregate 'origin' has the name of a key column"),
        ("delay_total:", "Flights:", "differ in case only"),
        ("delay_total:", "'a b':", "aggregate 'a b' is not a valid name"),
        ("key: [origin]", "key: [pane_index]", "key column 'pane_index' has the name of a column of Hindcast's own"),
        ("key: [origin]", "key: [origin, Origin]", "is given twice"),
        ("key: [origin]", "key: []", "log.key"),
        ("key: [origin]", "key: origin", "log.key: expected a list, such as [origin], found 'origin'"),
        ("key: [origin]", "key: [origin]\n  over: all", "found key and over"),
        ("  key: [origin]\n", "", "needs exactly one of `key: [columns]` and `over: all`"),
        ("{sum: dep_delay}", "{summ: dep_delay}", "unknown aggregate 'summ'"),
        ("{sum: dep_delay}", "{sum: {}}", "sum needs the name of a column"),
        ("{count: {}}", "{count: origin}", "count counts records and takes no column"),
        ("kind: bounded", "kind: punctuated", "kind: punctuated needs function, module:name"),
        ("kind: bounded", "kind: ascending", "kind: ascending takes no out_of_orderness"),
        ("kind: bounded, out_of_orderness: 6h", "kind: bounded", "kind: bounded needs out_of_orderness"),
        ("by: ingest_date", "by: 5", "expected commits, a column, or a list of partition columns such as [dt, hour]"),
        ("by: ingest_date", "by: [a, b, c, d, e]", "expected commits, a column, or a list of partition columns"),
        ("by: ingest_date", "by: [a, A]", "log.slice.by: names a column twice: ['a', 'A']"),
        ("by: ingest_date", "by: [y, m, d], format: yyyy", "expected yyyy, MM and dd, then perhaps HH and mm"),
        ("by: ingest_date", "by: [y, m, d], format: yyyyMMdd", "format: yyyyMMdd does not fit by: "),
        ("by: ingest_date", "by: commits, format: yyyyMMdd", "by: commits takes no format, found yyyyMMdd"),
        ("by: ingest_date, every: 1d", "by: d, format: yyyyMMdd, every: 1h", "does not tell slices of 1h apart"),
        ("by: ingest_date, every: 1d", "by: [y, m, d], every: 6h", "does not tell slices of 6h apart; write every: 1d"),
        ("every: 1d", "every: 7h", "every: 7h does not divide a day"),
        ("every: 1d", "every: 2d", "slices longer than a day"),
        (
            "every: 1d, timezone: UTC",
            "every: 1h, timezone: Europe/Berlin",
            "are cut in UTC, found timezone: Europe/Berlin",
        ),
        ("timezone: UTC", "timezone: Mars/Base", "unknown time zone 'Mars/Base'"),
        ("first: 2013-01-01", "first: 2015-01-01", "first: 2015-01-01 is after last: 2014-01-01"),
        ("{after: 2h}", "{after: 2h, min_records: 5}", "log.ready: needs exactly one sign of completeness"),
        ("{after: 2h}", "{}", "log.ready: needs exactly one sign of completeness"),
        ("{after: 2h}", "{after: 2h, then: hold}", "log.ready: then: hold needs a timeout, such as timeout: 12h"),
        (
            "{after: 2h}",
            "{timeout: 2h, then: holld}",
            "log.ready.then: found 'holld'; allowed: 'wait', 'publish_empty' or",
        ),
        (
            "{after: 2h}",
            "{all: [{aftr: 2h}]}",
            "log.ready.all[0].aftr: unknown key 'aftr'; allowed keys here: after, newer",
        ),
        ("{after: 2h}", "{all: [{aftr: 2h}]}", "did you mean 'after'?"),
        ("{after: 2h}", "{all: [{timeout: 2h}]}", "log.ready.all[0].timeout: unknown key 'timeout'"),
        ("{after: 2h}", "{any: []}", "log.ready.any: expected a list of conditions"),
        (
            "{after: 2h}",
            "{any: [{marker: done/_SUCCESS}]}",
            "log.ready.any[0].marker: expected a path with {slice_id}, such as done/{slice_id}, because each slice",
        ),
        ("{after: 2h}", "{any: [{all: [{any: [{all: [{any: [{after: 1h}]}]}]}]}]}", "nests all and any 5 times"),
        ("{after: 2h}", "{min_records: 0}", "log.ready.min_records: expected a whole number from 1 on, or {share: 0.5"),
        ("{after: 2h}", "{min_records: {shar: 0.5}}", "log.ready.min_records.shar: unknown key 'shar'"),
        (
            "{after: 2h}",
            "{min_records: {share: 1, number: 2}}",
            "log.ready.min_records: needs number or share, not both",
        ),
        ("{after: 2h}", "{min_records: {share: 1, of: weekday_medan}}", "did you mean 'weekday_median'?"),
        ("{after: 2h}", "{producer: my asset}", "log.ready.producer: expected the URI of an Airflow asset"),
        (
            '"0 6 * * *"',
            "{crn: 0 6 * * *}",
            "schedule.crn: unknown key 'crn'; allowed keys here: cron, asset; did you mean",
        ),
        ('"0 6 * * *"', "{}", "schedule: needs cron, such as"),
        ('"0 6 * * *"', "{asset: raw}", "schedule.asset[0]: expected the URI of an Airflow asset"),
        ("order: commits", "order: commit", "log.order: expected commits, appended, or a list of columns"),
        ("table: event_logs/flights", "table: ../secret", "must not contain '..'"),
        ('"0 6 * * *"', '"0 25 * * *"', "schedule: hour '25'"),
        ('"0 6 * * *"', '"0 6 * *"', "has 4 fields; a schedule has five"),
        ("expectations/flights.json", "expectations/../x.json", "must be a .json file below expectations/"),
        ("fail_on: critical", "fail_on: criticl", "did you mean 'critical'?"),
        ("fail_on: critical", "confirm: failure", "did you mean 'failures'?"),
        ("owner: operations", "owner: 5", 'owner: expected a text, such as "5", found 5'),
        ("key: [origin]", "key: [0]", 'log.key[0]: expected a text, such as "0", found 0'),
        (
            "owner: operations",
            "semantics: storm",
            "semantics: found 'storm', allowed for these windows: strict, flink, beam",
        ),
        (
            "owner: operations",
            "process: {}",
            "process.function: is missing; allowed keys here: function, output, state",
        ),
        ("owner: operations", "retention: {superseded: 1h}", "retention.superseded: must be at least 1d"),
        ("owner: operations", "max_parallelism: 0", "max_parallelism"),
        ("owner: operations", "max_parallelism: '8'", "max_parallelism: expected a whole number, found '8'"),
        ("pipeline: flights", "pipeline: Flights", "pipeline: found 'Flights'; allowed: lower-case letters"),
        ("pipeline: flights", "pipeline: event_logs", "is the name of a directory in the lake"),
    ],
)
def test_errors_name_the_file_the_key_and_what_is_allowed(old: str, new: str, message: str) -> None:
    assert old in FLIGHTS
    with pytest.raises(SpecError) as caught:
        parse_pipeline(FLIGHTS.replace(old, new, 1), source="my/flights.yaml")
    assert str(caught.value).startswith("my/flights.yaml: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert ("at least 1 item" in str(caught.value)) is (new == "key: []")


def test_one_error_lists_at_most_five_problems() -> None:
    with pytest.raises(SpecError) as caught:
        build_pipeline({"pipeline": "p", **{f"key{index}": 1 for index in range(20)}}, source="p.yaml")
    assert str(caught.value).count("p.yaml") == 1
    assert str(caught.value).count("unknown key") == 4, "the fifth is the missing log"
    assert str(caught.value).endswith("; and 16 more")


@pytest.mark.parametrize("document", [None, [], "text", 5])
def test_a_document_that_is_not_a_mapping_is_refused(document: object) -> None:
    with pytest.raises(SpecError, match="expected a mapping"):
        build_pipeline(document, source="p.yaml")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"origin": None}, "log.key[0]: the log has no column 'origin'; it has flight_id string"),
        ({"origin": "double"}, "date, timestamp; or derive a column in log.columns, such as cast("),
        (
            {"departed_at": "timestamp"},
            "log.event_time.column: column 'departed_at' is timestamp, which needs no unit; remove `unit`",
        ),
        ({"departed_at": "date"}, "log.event_time.column: column 'departed_at' is date, which needs no unit; remove"),
        ({"departed_at": "boolean"}, "log.event_time.column: column 'departed_at' is boolean; allowed: tinyint"),
        ({"dep_delay": "string"}, "aggregates.delay_total.sum: column 'dep_delay' is string"),
        ({"ingest_date": "double"}, "log.slice.by: column 'ingest_date' is double; allowed: date, string, tinyint"),
        ({"dep_delay": None, "Dep_delay": "double"}, "did you mean 'Dep_delay'?"),
    ],
)
def test_columns_that_do_not_fit_the_log_are_refused(changes: dict[str, str | None], message: str) -> None:
    columns = {name: kind for name, kind in (COLUMNS | changes).items() if kind is not None}
    with pytest.raises(SpecError) as caught:
        validate_against_schema(load_pipeline("flights", PIPELINES), columns)
    assert message in str(caught.value)
    assert "flights.yaml" in str(caught.value)


@pytest.mark.parametrize("name", ["home airport", "from (IATA)"])
def test_a_key_that_delta_refuses_is_derived_as_the_message_tells(name: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_pipeline(FLIGHTS.replace("key: [origin]", f"key: [{name}]"), source="p.yaml")
    columns = str(caught.value).partition("such as ")[2]
    derived = columns[1:].partition(":")[0]
    text = FLIGHTS.replace("key: [origin]", f"key: [{derived}]\n  columns: {columns}")
    validate_against_schema(parse_pipeline(text, source="p.yaml"), COLUMNS | {name: "string"})


def test_a_timestamp_needs_no_unit_and_a_number_does() -> None:
    text = FLIGHTS.replace("event_time: {column: departed_at, unit: ms}", "event_time: departed_at")
    pipeline = parse_pipeline(text, source="p.yaml")
    validate_against_schema(pipeline, COLUMNS | {"departed_at": "timestamp"})
    with pytest.raises(SpecError, match="for a number write the unit"):
        validate_against_schema(pipeline, COLUMNS)


def test_a_local_time_orders_records_and_has_extremes() -> None:
    """Defect: columns of type TIMESTAMP_NTZ were refused, although a replay orders and compares them."""
    text = FLIGHTS.replace("order: commits", "order: [seen]").replace(
        "aggregates:", "aggregates:\n  last_seen: {max: seen}"
    )
    validate_against_schema(parse_pipeline(text, source="p.yaml"), COLUMNS | {"seen": "timestamp_ntz"})


def test_a_pipeline_is_found_by_name_or_by_path(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=f"its pipelines are: {', '.join(SHIPPED)}; did you mean 'flights'"):
        load_pipeline("fligths", PIPELINES)
    with pytest.raises(SpecError, match="cannot be read"):
        load_pipeline("nowhere/p.yaml", PIPELINES)
    other = tmp_path / "other.yaml"
    other.write_text(FLIGHTS)
    assert load_pipeline(str(other), PIPELINES).name == "flights"
    with pytest.raises(SpecError, match="give both the same name"):
        load_pipeline("other", tmp_path)


def test_the_directory_of_a_file_that_is_a_link_is_that_of_the_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ConfigMap of Kubernetes: each file is a link into `..data`, and that is a link, which a deployment swaps."""
    release, pipelines = tmp_path / "pipelines" / "..2026_1", tmp_path / "pipelines"
    release.mkdir(parents=True)
    (release / "flights.yaml").write_text(FLIGHTS)
    (pipelines / "..data").symlink_to(release.name)
    (pipelines / "flights.yaml").symlink_to("..data/flights.yaml")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    for path in (pipelines / "flights.yaml", Path("../pipelines/flights.yaml")):
        assert load_pipeline(str(path), PIPELINES).functions_dir == pipelines
        assert parse_pipeline(FLIGHTS, source=str(path)).functions_dir == pipelines


def test_two_files_with_the_same_name_are_refused_by_every_reader(tmp_path: Path) -> None:
    """Defect: a file that ended in `.YAML` was ignored without a word."""
    for name in ("flights.yaml", "flights.YAML"):
        (tmp_path / name).write_text(FLIGHTS)
    (tmp_path / "rotations.YML").write_text((PIPELINES / "rotations.yaml").read_text())
    for name in ("flights", str(tmp_path / "flights.yaml"), str(tmp_path / "flights.YAML")):
        with pytest.raises(
            SpecError, match=r"the directory also has flights\.(yaml|YAML), and both are pipeline 'flights'"
        ):
            load_pipeline(name, tmp_path)
    files = load_all(tmp_path)
    assert [pipeline.name for pipeline in files.good] == ["rotations"]
    assert [(one.name, "the directory also has" in one.error) for one in files.broken] == [("flights", True)] * 2
    assert load_pipeline("rotations", tmp_path).name == "rotations", "a name finds every suffix"


def test_a_missing_directory_is_an_error_and_not_an_empty_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for directory in (tmp_path / "none", tmp_path / "file"):
        with pytest.raises(SpecError, match=f"{directory} cannot be read"):
            load_all(directory)
        with pytest.raises(SpecError, match=f"{directory} cannot be read"):
            load_pipeline("flights", directory)


def test_a_path_that_is_not_a_regular_file_is_refused_without_blocking(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.yaml")
    (tmp_path / "zero.yaml").symlink_to("/dev/zero")
    (tmp_path / "dangling.yaml").symlink_to("nowhere")
    (tmp_path / "directory.yaml").mkdir()
    (tmp_path / "flights.yaml").write_text(FLIGHTS)
    files = load_all(tmp_path)
    assert [one.name for one in files.good] == ["flights"]
    assert {one.name: one.error.partition(": ")[2] for one in files.broken} == {
        "dangling": "cannot be read: No such file or directory",
        "directory": "cannot be read: Is a directory",
        "fifo": "cannot be read: it is not a regular file",
        "zero": "cannot be read: it is not a regular file",
    }


def test_hidden_files_of_editors_are_no_pipelines(tmp_path: Path) -> None:
    (tmp_path / "flights.yaml").write_text(FLIGHTS)
    (tmp_path / ".flights.yaml").write_text("half a line")
    (tmp_path / ".#flights.yaml").symlink_to("ann@laptop.1234")
    files = load_all(tmp_path)
    assert ([pipeline.name for pipeline in files.good], files.broken) == (["flights"], ())


def test_a_bug_in_reading_one_file_stops_only_that_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("flights", "rotations"):
        (tmp_path / f"{name}.yaml").write_text((PIPELINES / f"{name}.yaml").read_text())

    def load(path: Path) -> Pipeline:
        return load_file(path) if path.stem == "rotations" else 1 / 0  # type: ignore[return-value]

    monkeypatch.setattr("jobs.pipeline.files.load_file", load)
    files = load_all(tmp_path)
    assert [one.name for one in files.good] == ["rotations"]
    assert "ZeroDivisionError: division by zero; this is a bug in Hindcast" in files.broken[0].error


def test_a_broken_file_does_not_hide_the_others(tmp_path: Path) -> None:
    (tmp_path / "flights.yaml").write_text(FLIGHTS)
    (tmp_path / "broken.yaml").write_text("pipeline: broken\n\t")
    (tmp_path / "empty.yml").write_text("")
    files = load_all(tmp_path)
    assert [pipeline.name for pipeline in files.good] == ["flights"]
    assert [one.name for one in files.broken] == ["broken", "empty"]
    assert all(str(one.path) in one.error for one in files.broken)


def test_the_modules_that_read_pipelines_import_no_large_library() -> None:
    code = (
        "import sys, jobs.pipeline.files, jobs.pipeline.slices\n"
        "large = {'pyspark', 'airflow', 'great_expectations', 'deltalake', 'pandas', 'duckdb', 'pyarrow', 'numpy'}\n"
        "print(sorted((large | {'croniter'}) & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PIPELINES.parent
    )
    assert done.stdout.strip() == "[]"
