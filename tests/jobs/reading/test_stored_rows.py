"""Readers and `verify` find rows that differ from the ledger; specs may have other keys (law L9)."""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.cli.main import hindcast
from jobs.cli.options import run_cli
from jobs.lake.filtered_files import records_of
from jobs.lake.lake import Lake
from jobs.lake.store import read_attempts
from jobs.lake.table_files import Attempt
from jobs.orchestration.requests import run_request
from jobs.planning.request_context import Asked, RequestContext, open_request_context
from jobs.reading.id_sums import id_sums
from jobs.reading.published import read_published, read_published_table
from jobs.reading.verified_log import verify_log
from jobs.reading.verify import Span, Verification, verify
from jobs.review.report.page import write_report
from tests.support.fake_replay import PIPELINE, FakeReplayer, append_day, day_ms, sales
from tests.support.flipped_bits import flip, last_bits
from tests.support.fuzzing import chances
from windowlib.columnar.row_identity import RowIdentity
from windowlib.errors import StoreError
from windowlib.records import tables
from windowlib.records.row_ids import IdSum

DAYS = ("2024-01-01", "2024-01-02", "2024-01-03")
LATE = {"record_hash": 5, "rank": 1, "event_time_ms": 1, "missed_all": True, "watermark_ms": 9, "late_by_ms": 8}


def run(work: RequestContext, start: str, end: str, *, is_fresh: bool = False) -> None:
    asked = Asked(from_ms=day_ms(start), to_ms=day_ms(end), who="a test", reason="to read it", is_fresh=is_fresh)
    replayer = FakeReplayer(beside={DAYS[0]: {tables.LATE_RECORDS: [{**LATE, "slice_id": DAYS[0]}]}})
    assert run_request(work, asked, replayer).is_published


@pytest.fixture
def work(tmp_path: Path) -> RequestContext:
    """Three published days, one late record."""
    for day in DAYS:
        append_day(tmp_path, day, {"a": 1, "b": 2})
    opened = open_request_context(sales(), Lake(root=str(tmp_path)), now_ms=lambda: day_ms("2024-02-01"))
    run(opened, DAYS[0], "2024-01-04")
    return opened


def shown(work: RequestContext, **named: Any) -> list[dict[str, Any]]:  # noqa: ANN401
    rows: list[dict[str, Any]] = read_published(work.lake, "sales", work.ledger.view(), **named).to_pylist()
    return rows


def verified(work: RequestContext, **named: Any) -> Verification:  # noqa: ANN401
    return verify(work.lake, "sales", work.ledger.view(), **named)


def only_file(work: RequestContext, table: str, day: str) -> Path:
    [path] = Path(work.lake.table("sales", table)).glob(f"slice_id={day}/*/*.parquet")
    return path


def change(path: Path, column: str, to: Callable[[Any], Any]) -> None:
    """Write a file again with one value changed, like a flipped bit that no checksum covers."""
    rows = pq.ParquetFile(path).read()
    values = rows[column].to_pylist()
    values[0] = to(values[0])
    index = rows.schema.get_field_index(column)
    pq.write_table(
        rows.set_column(index, rows.schema.field(index), pa.array(values, rows.schema.field(index).type)), path
    )


@pytest.mark.parametrize("at_once", [1, 2, 4, 100])
def test_verify_lists_every_file_with_a_damaged_page(work: RequestContext, at_once: int) -> None:
    """The files of the other runs of the table are compared all the same."""
    damaged = [only_file(work, tables.WINDOW_OUTPUTS, day) for day in (DAYS[0], DAYS[2])]
    for path in damaged:
        flip(path, last_bits(path)["row_id"])
    change(only_file(work, tables.WINDOW_OUTPUTS, DAYS[1]), "row_id", lambda value: value ^ 1)
    found = verified(work, rows_at_once=at_once).findings
    of_pages = [str(one) for one in found if "CRC checksum verification failed" in one.what]
    assert len(of_pages) == 2
    assert all(sum(path.name in text for text in of_pages) == 1 for path in damaged)
    assert {one.slice_id for one in found if str(one) not in of_pages} == {DAYS[1]}


def test_a_damaged_log_of_a_table_is_looked_at_once(work: RequestContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """Defect: the runs were halved down to single ones, and each step read the whole log again."""
    max(Path(work.lake.table("sales", tables.WINDOW_OUTPUTS), "_delta_log").glob("*.json")).write_bytes(b"{")
    reads = list[str]()

    def read(uri: str, attempts: Iterable[Attempt]) -> int:
        reads.append(uri)
        return records_of(uri, attempts)

    monkeypatch.setattr("jobs.reading.verify.records_of", read)
    told = [finding for finding in verified(work).findings if finding.table == tables.WINDOW_OUTPUTS]
    assert [(finding.slice_id, "_delta_log" in finding.what) for finding in told] == [(None, True)]
    assert [uri.rpartition("/")[2] for uri in reads].count(tables.WINDOW_OUTPUTS) == 1


def test_a_store_that_does_not_answer_is_no_damage(work: RequestContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not asked again for each run."""
    endpoint = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "HINDCAST_STORAGE_RETRY": "0s"}  # the port discards
    for name, value in {**endpoint, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}.items():
        monkeypatch.setenv(name, value)
    away, reads = Lake(root="s3://bucket/lake"), list[str]()

    def read(uri: str, attempts: Iterable[Attempt]) -> int:
        reads.append(uri)
        return records_of(uri, attempts)

    monkeypatch.setattr("jobs.reading.verify.records_of", read)
    with pytest.raises(StoreError, match=r"The store does not answer now: .*Could not connect"):
        verify(away, "sales", work.ledger.view())
    assert len(reads) == 1
    with pytest.raises(StoreError, match=r"The store does not answer now: .*Could not connect"):
        verify_log(away, work.pipeline, work.ledger.view(), span=Span())


def test_a_reader_names_the_damaged_file_of_the_rows_that_it_reads(work: RequestContext) -> None:
    damaged = {day: only_file(work, tables.WINDOW_OUTPUTS, day) for day in DAYS}
    for path in damaged.values():
        flip(path, last_bits(path)["row_id"])
    for run in work.ledger.view().runs.values():
        slice_id = run.result.slice.slice_id
        with pytest.raises(StoreError, match=damaged[slice_id].name):
            read_attempts(work.lake.table("sales", tables.WINDOW_OUTPUTS), [(slice_id, run.result.attempt_id)])


def test_undamaged_rows_are_read(work: RequestContext) -> None:
    assert len(shown(work)) == 6
    assert not {"row_id", "row_check", "fired_rank"} & shown(work)[0].keys()
    assert verified(work).findings == ()
    assert verified(work).rows == 6 + 1


@pytest.mark.parametrize("column", ["total", "fired_rank", "row_id", "row_check", "run_id"])
def test_readers_and_verify_find_a_changed_value(work: RequestContext, column: str) -> None:
    path = only_file(work, tables.WINDOW_OUTPUTS, DAYS[1])
    change(path, column, lambda value: "another" if isinstance(value, str) else value ^ 1)
    with pytest.raises(StoreError, match=f"table window_outputs, slice {DAYS[1]}, attempt .*{path.name}"):
        shown(work)
    with pytest.raises(StoreError):
        read_published_table(work.lake, "sales", tables.WINDOW_OUTPUTS, view=work.ledger.view())
    found = verified(work).findings
    assert {(one.table, one.slice_id) for one in found} == {(tables.WINDOW_OUTPUTS, DAYS[1])}
    assert all(path.name in str(one.file) for one in found)
    before = Span(to_ms=day_ms(DAYS[1]))
    assert verified(work, span=before).findings == ()


@pytest.mark.parametrize("rows", [0, 5, 6, None])
def test_readers_check_the_content_of_few_rows_and_the_ids_of_all_rows(work: RequestContext, rows: int | None) -> None:
    """Both sides of the threshold `content_rows`: the content of six rows is checked if the threshold is six."""
    change(only_file(work, tables.WINDOW_OUTPUTS, DAYS[1]), "total", lambda value: value + 2**43)
    if rows in {0, 5}:
        assert len(shown(work, content_rows=rows)) == 6
    else:
        with pytest.raises(StoreError, match="its content gives the id"):
            shown(work, content_rows=rows)
    change(only_file(work, tables.WINDOW_OUTPUTS, DAYS[2]), "row_id", lambda value: value ^ 4)
    with pytest.raises(StoreError):
        shown(work, content_rows=rows)


def test_lost_and_doubled_rows_are_found(work: RequestContext) -> None:
    uri = work.lake.table("sales", tables.WINDOW_OUTPUTS)
    rows = DeltaTable(uri).to_pyarrow_table()
    write_deltalake(uri, rows.slice(0, 1), mode="append")
    with pytest.raises(StoreError, match="has 3 rows, and their ids do not add up"):
        shown(work)
    DeltaTable(uri).delete("true")
    with pytest.raises(StoreError, match="has 0 rows"):
        shown(work)


def test_a_lost_table_is_not_an_empty_table(work: RequestContext) -> None:
    path = Path(work.lake.table("sales", tables.LATE_RECORDS))
    path.rename(path.with_name("elsewhere"))
    with pytest.raises(StoreError, match="has 0 rows"):
        read_published_table(work.lake, "sales", tables.LATE_RECORDS, view=work.ledger.view())


def test_a_changed_late_record_is_found(work: RequestContext) -> None:
    change(only_file(work, tables.LATE_RECORDS, DAYS[0]), "late_by_ms", lambda value: value + 1)
    with pytest.raises(StoreError, match="table late_records"):
        read_published_table(work.lake, "sales", tables.LATE_RECORDS, view=work.ledger.view())
    assert "late_records" in str(verified(work).findings[0])


@pytest.mark.parametrize("at_once", [1, 2, 4, 100])
def test_verify_finds_the_same_for_any_number_of_rows_at_once(
    work: RequestContext, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No more rows are in memory at once."""
    change(only_file(work, tables.WINDOW_OUTPUTS, DAYS[2]), "total", lambda value: value + 1)
    ids, most = RowIdentity.ids, 0

    def counted(self: RowIdentity, columns: Mapping[str, Any]) -> Any:  # noqa: ANN401
        nonlocal most
        most = max(most, len(columns["row_id"]))
        return ids(self, columns)

    monkeypatch.setattr(RowIdentity, "ids", counted)
    found = verified(work, rows_at_once=at_once)
    assert 0 < most <= at_once
    assert [(one.table, one.slice_id) for one in found.findings] == [(tables.WINDOW_OUTPUTS, DAYS[2])]
    assert (found.runs, found.rows) == (3, 7)


def test_the_command_names_the_damaged_file(
    work: RequestContext, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "sales.yaml").write_text(PIPELINE)
    places = ["--lake", str(tmp_path), "--pipelines", str(tmp_path / "pipelines")]
    assert run_cli(hindcast, ["verify", "sales", *places]) == 0
    # The runs have stored no digests of the files of the log, which have no checksums.
    assert "everything that could be compared is as it was written, and 3 files of the log could not" in (
        capsys.readouterr().out
    )
    assert run_cli(hindcast, ["verify", "sales", "--to", "2000-01-01", *places]) == 0
    assert "0 rows of 0 runs" in (told := capsys.readouterr().out)
    assert "no file of the log is of a published one of these slices" in told
    assert told.rstrip().endswith("no run is of these slices, so no row was compared")
    path = only_file(work, tables.WINDOW_OUTPUTS, DAYS[1])
    path.write_bytes(path.read_bytes()[:100])
    assert run_cli(hindcast, ["verify", "sales", "--json", *places]) == 1
    [finding] = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["table"], path.name in finding["what"]) == (tables.WINDOW_OUTPUTS, True)
    assert run_cli(hindcast, ["show", "sales", *places]) == 1
    captured = capsys.readouterr()
    assert path.name in captured.err
    assert "Traceback" not in captured.err + captured.out
    assert Path(write_report(work.lake, work.pipeline)).exists()


TWO_KEYS = PIPELINE.replace("key: [key]", "key: [key, id]")


@pytest.mark.parametrize(("first", "then"), [(PIPELINE, TWO_KEYS), (TWO_KEYS, PIPELINE)], ids=["added", "left out"])
def test_windows_are_identified_by_the_keys_of_their_own_spec(tmp_path: Path, first: str, then: str) -> None:
    """After a new spec adds or drops a key column, all windows of all published runs stay visible."""
    for day in DAYS:
        append_day(tmp_path, day, {"a": 1})
    lake = Lake(root=str(tmp_path))
    run(open_request_context(sales(first), lake, now_ms=lambda: day_ms("2024-02-01")), DAYS[0], DAYS[1], is_fresh=True)
    opened = open_request_context(sales(then), lake, now_ms=lambda: day_ms("2024-02-01"))
    run(opened, DAYS[1], DAYS[2], is_fresh=True)
    rows = shown(opened)
    per_day = {PIPELINE: 1, TWO_KEYS: 2}
    assert [row["slice_id"] for row in rows] == [DAYS[0]] * per_day[first] + [DAYS[1]] * per_day[then]
    assert len(shown(opened, all_panes=True)) == 3
    assert verified(opened).findings == ()


def test_sums_of_ids_equal_those_of_single_rows() -> None:
    for rng in chances(20):
        rows = [(rng.choice("ab"), rng.choice("xy"), rng.getrandbits(64) - 2**63) for _ in range(rng.randrange(1, 30))]
        named = dict(zip(("slice_id", "attempt_id", "row_id"), zip(*rows, strict=True), strict=True))
        expected: dict[tuple[str, str], IdSum] = {}
        for slice_id, attempt_id, identity in rows:
            expected.setdefault((slice_id, attempt_id), IdSum()).add(identity)
        found = id_sums(pa.table({name: pa.array(values) for name, values in named.items()}))
        assert {pair: ids.as_row() for pair, ids in found.items() if ids} == {
            pair: ids.as_row() for pair, ids in expected.items()
        }
