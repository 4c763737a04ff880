"""A column of the event log that is added or widened while windows are open whose records were read before."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from jobs.lake.json_lines import json_lines
from jobs.lake.lake import Lake
from jobs.pipeline.files import parse_pipeline
from jobs.pipeline.slices import slices_between
from jobs.planning.request_context import RequestContext, open_request_context
from jobs.planning.steps import Ask
from jobs.readers import published_table
from jobs.reading.verify import verify
from jobs.replay.orders import ReplayOrder
from jobs.replay.pinned import Pinned, pin
from tests.support.day_chains import DAY_MS, FIRST_MS, HOUR_MS, SCHEMA, run
from tests.support.delta_logs import commits_of
from tests.support.replays import NOW_MS
from windowlib.errors import HindcastError, RequestError, SpecError

LOG = (
    "pipeline: late\nlog:\n  table: log\n  over: all\n  event_time: {column: at, unit: ms}\n  slice: {by: day}\n"
    "  order: [seq]\n"
)
FUNCTION = """
from windowlib import Evictor

def shown(key, window, records):
    return [str([sorted(record.items(), key=str) for record in records])]

class Keep(Evictor):
    def keep_before(self, records, window, ctx):
        return [record for record in records if record.value.get("new") is None]
"""
ATLAS = (
    "semantics: mongodb\nwindows:\n  atlas:\n    $tumblingWindow:\n      interval: {size: 2, unit: day}\n"
    "      pipeline: [{$project: {_id: 0, v: 1, new: 1}}]\n"
)
PROCESS = (
    "watermark: {kind: ascending}\nwindows: {tumbling: {size: 2d}}\n"
    "process: {function: 'shown:shown', output: {document: string}}\n"
)
EVICTOR = (
    "watermark: {kind: ascending}\nwindows: {tumbling: {size: 2d}, evictor: {function: 'shown:Keep'}}\n"
    "aggregates: {document: {collect_list: v}}\n"
)


def append(root: Path, day: int, *, is_new: bool) -> None:
    row = {"k": 1, "at": FIRST_MS + day * DAY_MS + HOUR_MS, "v": day, "seq": day, "day": FIRST_MS // DAY_MS + day}
    schema = SCHEMA.append(pa.field("new", pa.int64())) if is_new else SCHEMA
    table = pa.Table.from_pylist([row | ({"new": 7} if is_new else {})], schema)
    write_deltalake(str(root / "log"), table, mode="append", partition_by=["day"], schema_mode="merge")


def context(root: Path, text: str) -> RequestContext:
    pipeline = parse_pipeline(text, source=str(root / "late.yaml"))
    return open_request_context(pipeline, Lake(root=str(root)), now_ms=lambda: NOW_MS)


@pytest.mark.slow
@pytest.mark.parametrize("windows", [ATLAS, PROCESS, EVICTOR], ids=["atlas", "process", "evictor"])
def test_records_of_open_windows_have_null_in_a_column_that_the_log_has_got_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, windows: str
) -> None:
    """The rows are those of one run over all days, with the column. Defect: those of an evictor were damage."""
    monkeypatch.setattr(Pinned, "threads", lambda _self, *, cores: min(cores, 1))  # users' functions run here, too
    shown = []
    for name in ("slice by slice", "together"):
        root = tmp_path / name
        root.mkdir()
        (root / "shown.py").write_text(FUNCTION)
        for day in range(3):
            append(root, day, is_new=False)
            if name == "slice by slice":
                run(context(root, LOG + windows), day, day + 1)
        for day in range(3, 6):
            append(root, day, is_new=True)
        assert run(context(root, LOG + windows), 3 if name == "slice by slice" else 0, 6).is_published
        rows = published_table(str(root), "late").select(["window_start", "document"]).to_pylist()
        opened = datetime.fromtimestamp((FIRST_MS + 2 * DAY_MS) / 1_000, tz=UTC)  # those before were complete
        shown.append(sorted(row["document"] for row in rows if row["window_start"] >= opened))
    assert shown[0] == shown[1]
    assert [2] in shown[0] if windows == EVICTOR else any("None" in text or "null" in text for text in shown[0])


@pytest.mark.slow
@pytest.mark.parametrize("windows", [ATLAS, PROCESS], ids=["atlas", "process"])
@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        (pa.date32(), "date", "timestamp_ntz"),
        (pa.int32(), "integer", "double"),
        (pa.int32(), "integer", "decimal(12,2)"),
    ],
    ids=["timestamp", "double", "decimal"],
)
def test_records_of_open_windows_have_the_values_of_a_widened_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, windows: str, kind: pa.DataType, before: str, after: str
) -> None:
    """The rows are those of one run over all days. Defects: days, also derived, were microseconds, numbers damage."""
    log = LOG.replace("  order: [seq]\n", "  order: [seq]\n  columns: {derived: v}\n")
    monkeypatch.setattr(Pinned, "threads", lambda _self, *, cores: min(cores, 1))  # users' functions run here, too
    schema = SCHEMA.set(SCHEMA.get_field_index("v"), pa.field("v", kind))
    rows = [
        {"k": 1, "at": FIRST_MS + day * DAY_MS, "v": 18_000 + day, "seq": day, "day": FIRST_MS // DAY_MS + day}
        for day in range(7)
    ]
    shown = []
    for name in ("slice by slice", "together"):
        root = tmp_path / name
        root.mkdir()
        (root / "shown.py").write_text(FUNCTION)
        write_deltalake(str(root / "log"), pa.Table.from_pylist(rows, schema), partition_by=["day"])
        if name == "slice by slice":
            run(context(root, log + windows), 0, 3)
        widen(root / "log", "v", before, after)
        assert run(context(root, log + windows), 3 if name == "slice by slice" else 0, 7).is_published
        found = published_table(str(root), "late").select(["window_start", "document"]).to_pylist()
        opened = datetime.fromtimestamp((FIRST_MS + 2 * DAY_MS) / 1_000, tz=UTC)  # those before were complete
        shown.append(sorted(row["document"] for row in found if row["window_start"] >= opened))
    assert shown[0] == shown[1]
    assert shown[0]


OTHER_OUTPUT = r"column 's' of table .*window_outputs is a bigint, but a replay now makes it a double"
OTHER_STATE = r"widened v from bigint to double, and the open windows hold a state of aggregates\.s that cannot go on"


@pytest.mark.parametrize(("aggregate", "refusal"), [("sum", OTHER_OUTPUT), ("min", OTHER_OUTPUT), ("avg", OTHER_STATE)])
def test_an_output_that_a_widened_column_changes_is_refused_by_its_name_while_windows_are_open(
    tmp_path: Path, aggregate: str, refusal: str
) -> None:
    """The rows of the state have another layout then, which is no damage. Defect: the state of `avg` was damage."""
    windows = f"windows: {{tumbling: {{size: 2d}}}}\naggregates: {{s: {{{aggregate}: v}}}}\n"
    text = f"{LOG}watermark: {{kind: ascending}}\n{windows}"
    for day in range(4):
        append(tmp_path, day, is_new=False)
    run(context(tmp_path, text), 0, 3)
    widen(tmp_path / "log", "v", "long", "double")
    work = context(tmp_path, text)
    with pytest.raises(HindcastError, match=refusal):
        run(work, 3, 4)
    ask = Ask(slices=slices_between(work.pipeline, FIRST_MS + 3 * DAY_MS, FIRST_MS + 4 * DAY_MS))
    with pytest.raises(RequestError if aggregate == "avg" else SpecError, match=refusal):  # only the run told it once
        work.plan(work.ledger.view(), ask)
    if aggregate == "avg":  # the log may have changed after the plan, between two chunks
        view = work.ledger.view()
        before = view.run(view.published[max(view.published)]).checkpoint
        assert {"v": "long"}.items() <= {field["name"]: field["type"] for field in before.state_columns or ()}.items()
        order = ReplayOrder(
            pipeline=work.pipeline, lake=work.lake, slices=ask.slices, before=before, request_id="r", attempt_id="a"
        )
        with pytest.raises(SpecError, match=refusal):
            pin(order)


@pytest.mark.slow
def test_a_key_that_was_widened_is_refused_by_the_plan_as_by_the_run_with_a_way_on(tmp_path: Path) -> None:
    """Defect: the plan told nothing, and the run advised to rename an output."""
    rows = [
        {"k": 1, "at": FIRST_MS + day * DAY_MS, "v": 1, "seq": day, "day": FIRST_MS // DAY_MS + day} for day in range(3)
    ]
    schema = SCHEMA.set(SCHEMA.get_field_index("k"), pa.field("k", pa.int32()))
    write_deltalake(str(tmp_path / "log"), pa.Table.from_pylist(rows, schema), partition_by=["day"])
    windows = "windows: {tumbling: {size: 1d}}\naggregates: {n: {count: {}}}\n"
    text = f"{LOG}watermark: {{kind: ascending}}\n{windows}".replace("over: all", "key: [k]")
    work = context(tmp_path, text)
    assert run(work, 0, 2).is_published
    widen(tmp_path / "log", "k", "integer", "long")
    ask = Ask(slices=slices_between(work.pipeline, FIRST_MS + 2 * DAY_MS, FIRST_MS + 3 * DAY_MS))
    refusal = r"key column 'k' of table .*window_outputs is a int, but the log makes it a bigint.*cast\(k as int\)"
    with pytest.raises(SpecError, match=refusal):
        work.plan(work.ledger.view(), ask)
    with pytest.raises(SpecError, match=refusal):
        run(work, 2, 3)
    derived = text.replace("key: [k]", "key: [k_int]\n  columns: {k_int: cast(k as int)}")
    assert run(context(tmp_path, derived.replace("pipeline: late", "pipeline: other")), 0, 3).is_published


@pytest.mark.slow
def test_verify_finds_no_damage_in_states_of_a_widened_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Defect: it read values of doubles as the integers that the log had first."""
    monkeypatch.setattr(Pinned, "threads", lambda _self, *, cores: min(cores, 1))
    schema = SCHEMA.set(SCHEMA.get_field_index("v"), pa.field("v", pa.int32()))
    rows = [
        {"k": 1, "at": FIRST_MS + day * DAY_MS, "v": 1, "seq": day, "day": FIRST_MS // DAY_MS + day} for day in range(3)
    ]
    write_deltalake(str(tmp_path / "log"), pa.Table.from_pylist(rows, schema), partition_by=["day"])
    text = f"{LOG}watermark: {{kind: ascending}}\nwindows: {{tumbling: {{size: 2d}}}}\naggregates: {{s: {{last: v}}}}\n"
    run(context(tmp_path, text), 0, 1)
    widen(tmp_path / "log", "v", "integer", "double")
    work = context(tmp_path, text.replace("{s:", "{other:"))
    assert run(work, 0, 3, is_fresh=True).is_published
    assert verify(work.lake, "late", work.ledger.view()).findings == ()


def widen(log: Path, column: str, before: str, after: str) -> None:
    """Commit another type of a column, as Delta's type widening does."""
    commits = [json_lines(commit.read_bytes()) for commit in commits_of(log)]
    [metadata] = (entry["metaData"] for entries in commits for entry in entries if "metaData" in entry)
    schema = json.loads(metadata["schemaString"])
    [field] = (field for field in schema["fields"] if field["name"] == column)
    field |= {"type": after, "metadata": {"delta.typeChanges": [{"fromType": before, "toType": after}]}}
    features = ["typeWidening", *(["timestampNtz"] if after == "timestamp_ntz" else [])]
    entries = [
        {
            "protocol": {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": features,
                "writerFeatures": features,
            }
        },
        {"metaData": metadata | {"schemaString": json.dumps(schema)}},
    ]
    path = log / "_delta_log" / f"{len(commits):020}.json"
    path.write_text("\n".join(map(json.dumps, entries)), "utf-8")
