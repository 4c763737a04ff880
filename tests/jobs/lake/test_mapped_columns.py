"""Logs whose columns were renamed (Delta's column mapping): files and commits have the physical names. No Spark."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from jobs.expressions.evaluation import derive
from jobs.lake.delta_log import DeltaPlace
from jobs.lake.event_log import pin_log
from jobs.lake.json_lines import json_lines
from jobs.lake.known_log import KnownLog
from jobs.lake.log_cut import Cut
from jobs.lake.log_look import log_slices, touched_since
from jobs.lake.log_match import Match, compare_coordinates
from jobs.lake.log_rows import find_records, leaf_columns
from jobs.lake.rewrite_search import spans_of_removals
from jobs.lake.slice_instants import Span
from jobs.pipeline.look_back import LookBack
from jobs.pipeline.models.expressions.derivation import derivation_of
from jobs.pipeline.models.log import SliceGrammar
from jobs.runs import Slice
from tests.support.delta_logs import commits_of, map_columns, rename_columns
from tests.support.fuzzing import seeds

FIRST = datetime(2026, 3, 1, tzinfo=UTC)
FIRST_MS, DAY_MS = round(FIRST.timestamp() * 1000), 86_400_000
DAYS = tuple(
    Slice(slice_id=f"2026-03-{n + 1:02d}", start_ms=FIRST_MS + n * DAY_MS, end_ms=FIRST_MS + (n + 1) * DAY_MS)
    for n in range(9)
)
TIMES, DATES = ("a", "b", "c"), ("p", "q")


def _append(log: Path, chance: Random) -> dict[str, list[datetime]]:
    """Append a file; return physical column -> its values. The values of two columns differ."""
    times = {name: [FIRST + timedelta(hours=chance.randrange(9 * 24)) for _ in range(3)] for name in TIMES}
    days = {name: [FIRST + timedelta(days=chance.randrange(9))] * 3 for name in DATES}
    columns = {name: pa.array(values, pa.timestamp("us", "UTC")) for name, values in times.items()}
    columns |= {name: pa.array([at.date() for at in values], pa.date32()) for name, values in days.items()}
    write_deltalake(str(log), pa.table(columns), mode="append", partition_by=[*DATES])
    return times | days


def _span(values: Sequence[datetime]) -> Span:
    ends = [round(at.timestamp() * 1000) for at in values]
    return Span(min(ends), max(ends))


def test_a_renamed_column_has_the_values_of_its_physical_name(tmp_path: Path) -> None:
    """Random renames, some of which swap names: bounds, slices and looks agree with the values in the files."""
    for seed in seeds(10):
        chance = Random(seed)
        log, after = tmp_path / str(seed), chance.randrange(1, 3)
        files = [_append(log, chance) for _ in range(chance.randrange(after, 6))]
        gone = _append(log, chance)
        DeltaTable(str(log)).delete(" AND ".join(f"{name} = '{gone[name][0].date()}'" for name in DATES))
        names = dict(zip(TIMES, chance.sample([*TIMES, "d"], 3), strict=True))
        names |= dict(zip(DATES, chance.sample([*DATES, "r"], 2), strict=True))
        rename_columns(log, names, after=after)
        place = DeltaPlace(uri=str(log))
        opened, tip = place.open(), place.tip()
        assert tip is not None
        kept = [own for own in files if [own[name] for name in DATES] != [gone[name] for name in DATES]]
        for physical, name in names.items():
            rows = opened.bounds(name).to_pylist()
            real = [(min(own[physical]), max(own[physical])) for own in kept if physical in TIMES]
            assert sorted((row["low"], row["high"]) for row in rows) == sorted(real), seed
            by = SliceGrammar(by=name)
            cut = Cut(uri=str(log), by=by, slices=DAYS)
            seen = log_slices(place, by=by, back=LookBack(slices=DAYS), known=KnownLog())
            records = Counter(cut.slice_of(_span([at]).first_ms) for own in kept for at in own[physical])
            assert {day: own.records for day, own in seen.coordinates.items() if own.records} == records, seed
            before_gone = touched_since(replace(tip, version=tip.version - 1), after, cut, names=seen.names)
            assert before_gone is not None, seed
            assert {*before_gone} == {_span(own[physical]) for own in [*files[after:], gone]}, seed
            own = derivation_of(tuple(opened.columns.items()), (("x", f"cast({name} as varchar)"), ("y", name)), None)
            record = (
                next(find_records(opened, "x", str(kept[-1][physical][0].date()), derivation=own), None)
                if kept
                else None
            )
            if record is not None:
                assert derive(leaf_columns(opened, own, record), own).rows["y"][0].as_py() == record[name], seed
            if physical in DATES:
                found = None if record is None else record[name]
                assert found == (kept[-1][physical][0].date() if kept else None), seed
                assert (touched_since(tip, tip.version - 1, cut, names=seen.names) or {}).keys() >= {
                    _span(gone[physical])
                }, seed
                assert _span(gone[physical]) in spans_of_removals(place, by=by, known=KnownLog()), seed
        assert opened.bounds("missing").num_rows == 0


def test_a_log_that_maps_its_columns_no_more_keeps_its_slices(tmp_path: Path) -> None:
    """Defect: each plan was refused for ever, because older commits name the partition by its physical name."""
    log, chance = tmp_path / "log", Random(1)
    for _ in range(3):
        _append(log, chance)
    metadata = next(entry for entry in json_lines(commits_of(log)[0].read_bytes()) if "metaData" in entry)
    map_columns(log, "name")
    place, by = DeltaPlace(uri=str(log)), SliceGrammar(by="p")
    before = pin_log(place, by=by, slices=DAYS)
    actions = [entry for commit in commits_of(log) for entry in json_lines(commit.read_bytes())]
    entries: list[dict[str, Any]] = [{"commitInfo": {"operation": "REMOVE COLUMN MAPPING"}}, metadata]
    for old in (entry["add"] for entry in actions if "add" in entry):
        path = old["path"].replace("part-", "new-")
        (log / old["path"]).rename(log / path)
        named = {name.removeprefix("col-")[::-1]: value for name, value in old["partitionValues"].items()}
        entries.append({"remove": {**old, "deletionTimestamp": 0, "dataChange": False}})
        entries.append({"add": {**old, "path": path, "partitionValues": named, "dataChange": False}})
    (log / "_delta_log" / f"{3:020}.json").write_text("\n".join(map(json.dumps, entries)))
    for known in (None, before.known()):
        now = pin_log(place, by=by, slices=DAYS, known=known)
        for slice_ in DAYS:
            then = before.coordinates(slice_.slice_id)
            assert compare_coordinates(then, now.coordinates(slice_.slice_id)) is Match.SAME
            assert now.coordinates(slice_.slice_id).records == then.records
