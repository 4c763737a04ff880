"""A state goes on with other columns of the log, is read with its own types, or is refused by name."""

from pathlib import Path
from typing import Any

import pytest

from jobs.lake.lake import Lake
from jobs.pipeline.files import parse_pipeline
from jobs.planning.state_columns import StateGate
from jobs.runs import CheckpointRef, LogCoordinates
from windowlib.errors import SpecError
from windowlib.records.column_types import PHYSICAL_NAME, field_node, identified_fields, parse_type, spell_type
from windowlib.records.tables import WINDOW_STATE

LOG = (
    "pipeline: p\nlog:\n  table: log\n  over: all\n  event_time: {column: at, unit: ms}\n  slice: {by: day}\n"
    "  order: [at]\n"
)
ATLAS = (
    "semantics: mongodb\nwindows:\n  atlas:\n    $tumblingWindow:\n      interval: {size: 2, unit: day}\n"
    "      pipeline: [{$project: {_id: 0, v: 1}}]\n"
)
DERIVED = LOG + "  columns: {text: cast(v as varchar), same: v}\n" + ATLAS
WINDOWS = "watermark: {kind: ascending}\nwindows: {tumbling: {size: 2d}"
AVERAGE = LOG + WINDOWS + "}\naggregates: {s: {avg: v}}\n"
EVICTOR = LOG + WINDOWS + ", evictor: {count: {keep: 9}}}\naggregates: {s: {collect_list: v}}\n"
FUNCTION = LOG + WINDOWS + "}\nprocess: {function: 'm:f', output: {s: string}, state: {n: {type: bigint}}}\n"
NOWHERE = LogCoordinates(table_id="t", version=0, commits=(), files=0, records=0, bytes=0)
OTHERS = {"at": "bigint", "day": "date"}


def ref(columns: dict[str, str] | None, ids: dict[str, str]) -> CheckpointRef:
    return CheckpointRef(
        slice_id="2026-01-01", run_id="r", attempt_id="a", fingerprint="f", digests={WINDOW_STATE: "some"},
        state_columns=None if columns is None else fields(columns, ids), log=NOWHERE,
    )  # fmt: skip


def fields(columns: dict[str, str], ids: dict[str, str]) -> tuple[Any, ...]:
    metadata = {name: {PHYSICAL_NAME: own} for name, own in ids.items()}
    made = (field_node(name, parse_type(kind), metadata.get(name)) for name, kind in {**OTHERS, **columns}.items())
    return tuple(identified_fields(made))


def former_dates(
    root: Path,
    text: str,
    before: dict[str, str] | None,
    now: dict[str, str],
    *,
    table_id: str = "t",
    **facts: dict[str, str],
) -> frozenset[str]:
    own = fields(now, facts.get("ids", {}))
    gate = StateGate(
        pipeline=parse_pipeline(text, source="p.yaml"),
        lake=Lake(root=str(root)),
        fields=own,
        columns={field["name"]: spell_type(field["type"]) for field in own},
        widened=facts.get("widened", {}),
        table_id=table_id,
    )
    return gate.were_dates(ref(before, facts.get("former_ids", {})))


@pytest.mark.parametrize(
    ("text", "before", "now", "dates"),
    [
        (DERIVED, {"v": "date"}, {"v": "date", "new": "int"}, set()),
        (LOG + ATLAS, {"v": "date", "gone": "int"}, {"v": "timestamp_ntz"}, {"v"}),
        (LOG + ATLAS, {"v": "array<date>"}, {"v": "array<timestamp_ntz>"}, {"v"}),
        (LOG + ATLAS, {"v": "struct<a:date,c:int>"}, {"v": "struct<b:int,a:timestamp_ntz,c:double>"}, {"v"}),
        (DERIVED, {"v": "int"}, {"v": "bigint"}, set()),
        (LOG + ATLAS, {"v": "int"}, {"v": "decimal(12,2)"}, set()),
        (AVERAGE, {"v": "int"}, {"v": "bigint"}, set()),
        (EVICTOR, {"v": "struct<a:int>"}, {"v": "struct<a:int,b:int>"}, set()),
        (FUNCTION, {"v": "decimal(9,2)"}, {"v": "decimal(12,2)"}, set()),
        (LOG + ATLAS, None, {"v": "timestamp_ntz"}, set()),
    ],
)
def test_a_state_goes_on(
    tmp_path: Path, text: str, before: dict[str, str] | None, now: dict[str, str], dates: set[str]
) -> None:
    assert former_dates(tmp_path, text, before, now) == dates


@pytest.mark.parametrize(
    ("text", "before", "now", "refusal"),
    [
        (LOG + ATLAS, {"v": "int"}, {"w": "int"}, "the columns at, day, w now.*with at, day, v"),
        (LOG + ATLAS, {"v": "array<struct<a:int>>"}, {"v": "array<struct<b:int>>"}, "the columns b in v now"),
        (LOG + ATLAS, {"v": "struct<a:date,b:timestamp_ntz>"}, {"v": "struct<a:timestamp_ntz,b:timestamp_ntz>"},
         "only some of the instants of v were dates"),
        (DERIVED, {"v": "int"}, {"v": "double"}, "v from int to double, .* values that log.columns.text made"),
        (FUNCTION, {"v": "int"}, {"v": "double"}, "values that function m:f made"),
        (AVERAGE, {"v": "int"}, {"v": "double"}, r"a state of aggregates\.s that cannot go on"),
        (EVICTOR, {"v": "struct<a:int>"}, {"v": "struct<b:int,a:int>"}, "the columns b, a in v now"),
    ],
)  # fmt: skip
def test_a_state_that_would_be_wrong_in_silence_is_refused(
    tmp_path: Path, text: str, before: dict[str, str], now: dict[str, str], refusal: str
) -> None:
    with pytest.raises(SpecError, match=refusal):
        former_dates(tmp_path, text, before, now)


def test_a_column_with_the_name_of_another_one_is_refused(tmp_path: Path) -> None:
    now, ids = {"v": "int", "w": "int"}, {"w": "c1", "v": "c2"}
    with pytest.raises(SpecError, match="another value"):
        former_dates(tmp_path, LOG + ATLAS, {"v": "int"}, now, former_ids={"v": "c1"}, ids=ids)
    assert not former_dates(
        tmp_path, LOG + ATLAS, {"v": "int"}, now, table_id="a copy", former_ids={"v": "c1"}, ids=ids
    )


def test_a_date_of_an_unknown_time_is_refused(tmp_path: Path) -> None:
    """Runs of earlier versions have stored no columns, and the version of the log that they read is gone."""
    with pytest.raises(SpecError, match="widened v from date, and the version"):
        former_dates(tmp_path, LOG + ATLAS, None, {"v": "timestamp_ntz"}, widened={"v": "date"})
