"""Whole pipeline files over small logs, through the code of a Spark task but without Spark."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from jobs.pipeline.files import build_pipeline
from jobs.pipeline.models.pipeline import Pipeline
from tests.support.bucket_replay import LogSlice, Replayed, replay_in_process
from windowlib.keyed.key_groups import key_group
from windowlib.records import tables

DAY_MS = 86_400_000
COLUMNS = {"key": "string", "at_ms": "bigint", "seen_ms": "bigint", "amount": "bigint", "gap_ms": "bigint"}
BASE: Mapping[str, Any] = {
    "pipeline": "small",
    "log": {
        "table": "event_logs/small",
        "key": ["key"],
        "event_time": {"column": "at_ms", "unit": "ms"},
        "arrival_time": {"column": "seen_ms", "unit": "ms"},
        "slice": {"by": "day"},
    },
    "watermark": {"kind": "ascending"},
    "aggregates": {"records": {"count": {}}, "amounts": {"collect_list": "amount"}},
}
Drawn = tuple[str, int, int]
"""Key, event time, and arrival after the slice's start."""


def pipeline(**changes: Any) -> Pipeline:  # noqa: ANN401 - parts of a file
    document = {name: part for name, part in {**BASE, **changes}.items() if part is not None}
    return build_pipeline(document, source="small.yaml")


def log_of(*slices: Sequence[Drawn], gaps: Sequence[int] = ()) -> list[LogSlice]:
    """A slice a day; `amount` counts the records of the log."""
    log, count = [], 0
    for number, drawn in enumerate(slices):
        records = []
        for key, at_ms, after_ms in drawn:
            gap_ms = gaps[count] if gaps else 5
            seen_ms = number * DAY_MS + after_ms
            records.append({"key": key, "at_ms": at_ms, "seen_ms": seen_ms, "amount": count, "gap_ms": gap_ms})
            count += 1
        log.append(LogSlice(start_ms=number * DAY_MS, end_ms=(number + 1) * DAY_MS, records=records))
    return log


def check_cuts(found: Pipeline, log: Sequence[LogSlice], root: Path) -> Replayed:
    """Replay as one chunk and slice by slice: the same rows, and the audit closes. Returns the first."""
    whole = replay_in_process(found, COLUMNS, log)
    cut = replay_in_process(found, COLUMNS, log, chunks=[1] * len(log))
    for table in whole.rows:
        assert whole.sorted(table) == cut.sorted(table), table
    whole.audited(root, log)
    return whole


POSITIONED = {
    "all": {"collect_list": "amount"},
    "one": {"first": "amount"},
    "other": {"last": "amount"},
    "total": {"sum": "amount"},
}


class TestCountWindowsThatSlide:
    @pytest.mark.parametrize(("size", "slide"), [(4, 2), (2, 4), (3, 3), (1, 1), (5, 2)])
    def test_aggregates_that_keep_positions_go_through_a_checkpoint(
        self, size: int, slide: int, tmp_path: Path
    ) -> None:
        log = log_of(*([("a", 10 * day + n, n) for n in range(5)] for day in range(4)))
        counts = pipeline(windows={"count": {"size": size, "slide": slide}}, aggregates=POSITIONED, watermark=None)
        replayed = check_cuts(counts, log, tmp_path)
        found = replayed.rows[tables.WINDOW_OUTPUTS]
        expected = [list(range(max(0, end - size), end)) for end in range(slide, 21, slide)]
        assert [row["all"] for row in found] == expected
        assert [(row["one"], row["other"], row["total"]) for row in found] == [
            (part[0], part[-1], sum(part)) for part in expected
        ]
        assert replayed.published(counts, ["all"]) == sorted(((part,) for part in expected), key=repr)


class TestIdenticalSessions:
    """F1: Flink gives a session that equals an open, merged one fresh contents, and loses the others."""

    def sessions(self, semantics: str) -> Pipeline:
        windows = {"dynamic_session": {"gap": {"column": "gap_ms"}}}
        return pipeline(windows=windows, semantics=semantics, watermark={"kind": "bounded", "out_of_orderness": "1d"})

    @pytest.mark.parametrize(("semantics", "shown"), [("strict", [0, 1, 2]), ("flink", [2])])
    def test_three_records_are_enough_and_the_audit_closes(
        self, semantics: str, shown: list[int], tmp_path: Path
    ) -> None:
        ends = ("b", 10 * DAY_MS, 5)
        log = log_of([("a", 0, 1), ("a", 0, 2), ("a", 0, 3)], [], [ends], gaps=(5, 10, 10, 5))
        found = check_cuts(self.sessions(semantics), log, tmp_path)
        assert [row["amounts"] for row in found.rows[tables.WINDOW_OUTPUTS]] == [shown]

    def test_contents_can_be_lost_again_in_later_slices(self, tmp_path: Path) -> None:
        again = [("a", 0, 1), ("a", 0, 2), ("a", 0, 3)]
        log = log_of(again, again, again, [("b", 30 * DAY_MS, 1)], gaps=(5, 10, 10, 10, 15, 15, 15, 10, 15, 5))
        check_cuts(self.sessions("flink"), log, tmp_path)


MINUTE_MS = 60_000


class TestTheViewOfSeveralPanes:
    """What readers see of a window that fires more than once in a slice."""

    def test_a_pane_that_fires_before_the_first_record_of_its_slice(self, tmp_path: Path) -> None:
        """The clock of the second slice fires it, and the record that led there stands in the first."""
        panes = pipeline(
            windows={
                "tumbling": {"size": "1h"},
                "trigger": {"repeatedly": {"after_processing_time": "20m"}},
                "leftovers": "report",
            }
        )
        evening_ms = DAY_MS - 5 * MINUTE_MS
        first = [("b", rank, rank) for rank in range(9)] + [("a", rank, evening_ms) for rank in range(3)]
        second = [
            ("c", 0, 30 * MINUTE_MS),
            ("a", 5, 40 * MINUTE_MS),
            ("a", 6, 90 * MINUTE_MS),
            ("a", 7, 91 * MINUTE_MS),
        ]
        replayed = check_cuts(panes, log_of(first, second), tmp_path)
        assert replayed.published(panes, ["key", "pane_index", "records"]) == [("a", 2, 6), ("b", 0, 9), ("c", 0, 1)]
        ranks = [row["fired_rank"] for row in replayed.rows[tables.WINDOW_OUTPUTS] if row["key"] == "a"]
        assert ranks == [-1, 1, 3]

    @pytest.mark.parametrize("semantics", ["strict", "flink"])
    def test_a_trigger_that_purges_inside_a_time_out(self, semantics: str, tmp_path: Path) -> None:
        """Twelve records: five are purged with their pane, two wait out the time, five more make a pane with them."""
        trigger = {"timeout": {"trigger": {"purging": {"count": 5}}, "after": "10m"}}
        windows = {"tumbling": {"size": "1h"}, "trigger": trigger, "leftovers": "report"}
        panes = pipeline(windows=windows, semantics=semantics, watermark={"kind": "bounded", "out_of_orderness": "1d"})
        early, late = [("a", n, n) for n in range(7)], [("a", 7 + n, 20 * MINUTE_MS + n) for n in range(5)]
        replayed = check_cuts(panes, log_of(early, late), tmp_path)
        said = [(row["mode"], row["amounts"]) for row in replayed.rows[tables.WINDOW_OUTPUTS]]
        assert said == [
            ("accumulating", [0, 1, 2, 3, 4]),
            ("discarding", [5, 6]),
            ("accumulating", [5, 6, 7, 8, 9, 10, 11]),
        ]
        seen = replayed.published(panes, ["pane_index", "records"])
        assert seen == [(0, 5), (2, 7)]


SIDEWAYS = {
    "function": {"name": "tests.support.functions:TellsAside", "columns": ["amount"]},
    "output": {"records": "bigint"},
    "side_outputs": {"aside": {"amount": "bigint"}},
}


class TestSideOutputs:
    @pytest.mark.parametrize(
        ("windows", "at_ms"),
        [
            ({"global": {}, "trigger": {"count": 2}}, None),
            ({"count": {"size": 2}}, None),
            ({"count": {"size": 2, "slide": 1}}, None),
            ({"tumbling": {"size": "1h"}, "trigger": {"count": 2}, "leftovers": "report"}, 3_599_999),
            ({"storm": {"length": {"count": 2}, "slide": {"count": 2}, "time": "processing"}}, None),
        ],
    )
    def test_their_time_is_the_end_of_the_window_or_null(self, windows: Any, at_ms: int | None, tmp_path: Path) -> None:  # noqa: ANN401
        watermark = BASE["watermark"] if "tumbling" in windows else None
        told = pipeline(windows=windows, aggregates=None, process=SIDEWAYS, watermark=watermark)
        found = check_cuts(told, log_of([("a", n, n) for n in range(5)], [("a", 9, 9)]), tmp_path)
        rows = found.rows[tables.side_outputs_name("aside")]
        assert rows
        assert {row["event_time_ms"] for row in rows} == {at_ms}


STATEFUL = {
    "function": {"name": "tests.support.functions:Waits", "columns": ["amount"]},
    "output": {"amount": "bigint"},
    "state": {"seen": {"kind": "list", "type": "bigint"}},
}
ATLAS_STAGE = {"$tumblingWindow": {"interval": {"size": 1, "unit": "hour"}, "pipeline": [{"$count": "n"}]}}
OF_EVERY_ENGINE: Mapping[str, Mapping[str, Any]] = {
    "windows": {"windows": {"session": {"gap": "1h"}, "trigger": {"count": 2}, "leftovers": "report"}},
    "user state": {"windows": None, "aggregates": None, "process": STATEFUL},
    "storm": {"windows": {"storm": {"length": {"count": 2}}}, "watermark": None},
    "atlas": {"windows": {"atlas": ATLAS_STAGE}, "watermark": None, "aggregates": None},
}


class TestMaxParallelism:
    @pytest.mark.parametrize("engine", OF_EVERY_ENGINE)
    def test_it_is_the_number_of_key_groups_and_changes_nothing_else(self, engine: str, tmp_path: Path) -> None:
        log = log_of(*([(key, 10 * day + n, n) for n, key in enumerate("abcdefgh")] for day in range(2)))
        outputs = []
        for groups in (1, 7, 32_768):
            one = pipeline(**OF_EVERY_ENGINE[engine], max_parallelism=groups)
            found = check_cuts(one, log, tmp_path / str(groups))
            outputs.append(found.sorted(tables.WINDOW_OUTPUTS))
            state = [row for name in tables.INCREMENTAL_TABLES for row in found.rows[name]]
            assert state
            assert all(row["key_group"] == key_group((row["key"],), groups) for row in state)
        assert all(one == outputs[0] for one in outputs)


@pytest.mark.parametrize(
    ("function", "kind", "value"),
    [
        ("counted_number", "bigint", lambda count: count),
        ("counted_list", "array<bigint>", lambda count: [count]),
        ("counted_map", "map<string,bigint>", lambda count: [("a", count)]),
        ("counted_structs", "struct<a:bigint>", lambda count: {"a": count}),
    ],
)
def test_a_retraction_has_the_result_of_the_pane_that_it_takes_back(
    function: str, kind: str, value: Callable[[int], Any], tmp_path: Path
) -> None:
    """Also where the pane was emitted before a checkpoint: a function may return a mapping."""
    windows = {
        "tumbling": {"size": "10d"},
        "trigger": {"count": 2},
        "accumulation": "retracting",
        "leftovers": "report",
    }
    process = {"function": f"tests.support.functions:{function}", "output": {"r": kind}}
    panes = pipeline(aggregates=None, windows=windows, process=process)
    log = log_of(*([(key, day, day)] * 2 for day in range(4) for key in "ab"))
    rows = check_cuts(panes, log, tmp_path).rows[tables.WINDOW_OUTPUTS]
    shown = [(row["key"], row["kind"], row["pane_index"], row["r"]) for row in rows]
    expected = [
        (key, what, pane, value(2 * pane + 2))
        for key in "ab"
        for pane in range(4)
        for what in (("result",) if pane == 3 else ("result", "retraction"))
    ]
    assert sorted(shown, key=str) == sorted(expected, key=str)


class TestColumnsOfFunctions:
    """A function sees the columns that its file names, whatever other parts of the pipeline read."""

    OTHER_PARTS: Mapping[str, Mapping[str, Any]] = {
        "an evictor": {"tumbling": {"size": "1h"}, "evictor": {"delta": {"column": "amount", "threshold": 100}}},
        "a trigger": {
            "tumbling": {"size": "1h"},
            "trigger": {"delta": {"column": "amount", "threshold": 0}},
            "leftovers": "fire",
        },
        "a gap": {"dynamic_session": {"gap": {"column": "at_ms", "unit": "ms"}}},
    }

    @pytest.mark.parametrize("part", OTHER_PARTS)
    @pytest.mark.parametrize("function", ["newest_of_two", "names_of_columns"])
    def test_other_parts_show_it_nothing_more(self, part: str, function: str, tmp_path: Path) -> None:
        process = {
            "function": {"name": f"tests.support.functions:{function}", "columns": ["seen_ms", "gap_ms"]},
            "output": {"seen_ms": "bigint", "gap_ms": "bigint"},
        }
        one = pipeline(aggregates=None, windows=self.OTHER_PARTS[part], process=process)
        found = check_cuts(one, log_of([("a", 1, 0), ("a", 3, 1)], [("a", 4, 0), ("a", 7_200_000, 1)]), tmp_path)
        assert DAY_MS in {row["seen_ms"] for row in found.sorted(tables.WINDOW_OUTPUTS)}
