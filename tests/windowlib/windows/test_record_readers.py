"""Record readers: how measures, gaps, watermark rules and evictors of a pipeline read the columns of a record."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import inf, nan
from typing import Any

import pytest

from windowlib.bounds import MAX_TIME_MS, Window
from windowlib.errors import SpecError
from windowlib.functions.window_functions import aggregate
from windowlib.records.records import Pane, Record, Stored
from windowlib.testkit.harness import Harness
from windowlib.triggers.flink import DeltaExceeded
from windowlib.triggers.protocol import (
    CONTINUE,
    FINISH,
    FIRE,
    FIRE_AND_PURGE,
    PURGE,
    Trigger,
    TriggerContext,
    TriggerResult,
)
from windowlib.triggers.wrappers import ProcessingTimeout
from windowlib.windows.assigners import Session, Tumbling
from windowlib.windows.evictors import Evictor, EvictorContext, KeepClose
from windowlib.windows.record_readers import (
    ColumnsOf,
    EvictorOnColumns,
    GapOfColumn,
    Measure,
    TriggerOnColumns,
    WatermarkOfColumn,
    WatermarkOfFunction,
)
from windowlib.windows.spec import WindowSpec


@pytest.mark.parametrize(
    ("found", "read"),
    [(None, None), (5, 5), (1 << 62, 1 << 62), (2.5, 2.5), (nan, None), (-inf, None), (Decimal("1.5"), 1.5)],
    ids=["null", "int", "long", "double", "nan", "infinite", "decimal"],
)
def test_a_measure_reads_a_column_as_a_number_or_as_null(found: object, read: float | None) -> None:
    assert Measure(1)((None, found)) == read
    assert Measure("x")({"x": found}) == read


def test_columns_are_read_as_a_mapping() -> None:
    assert ColumnsOf((("a", 2), ("b", 0)))((1, 2, 3)) == {"a": 3, "b": 1}
    assert ColumnsOf()({"whole": 1}) == {"whole": 1}


@pytest.mark.parametrize(("unit", "ms"), [("s", -5_000), ("ms", -5), ("us", -1), ("ns", -1)])
def test_units_round_towards_the_past(unit: str, ms: int) -> None:
    record = Record("k", 0, (-5,))
    assert GapOfColumn(place=0, unit=unit)(record) == ms
    assert WatermarkOfColumn(column="w", unit=unit)(0, {"w": -5}) == ms
    assert WatermarkOfColumn(column="w", unit=unit)(0, {"w": None}) is None


def test_an_unknown_unit_and_a_watermark_that_is_not_an_integer_are_refused() -> None:
    with pytest.raises(SpecError, match="must be one of s, ms, us, ns, got 'h'"):
        GapOfColumn(place=0, unit="h")
    for wrong in (True, 1.0, "soon", 1 << 63):
        with pytest.raises(SpecError, match=f"a:b returned {wrong!r}"):
            WatermarkOfFunction(name="a:b", function=lambda value: value)(wrong)
    assert WatermarkOfFunction(name="a:b", function=lambda value: value)(None) is None


class _KeepSecond(Evictor):
    def keep_before(self, records: Sequence[Stored], window: Window, ctx: EvictorContext) -> Sequence[Stored]:  # noqa: ARG002
        assert all(set(record.value) == {"x"} for record in records)
        return records[1:2]


@dataclass(frozen=True, slots=True)
class _Keeps(Evictor):
    choose: Callable[[Sequence[Stored]], Any]

    def keep_before(self, records: Sequence[Stored], window: Window, ctx: EvictorContext) -> Sequence[Stored]:  # noqa: ARG002
        return self.choose(records)  # type: ignore[no-any-return]


class _ReturnsNewRecords(Evictor):
    def keep_after(self, records: Sequence[Stored], window: Window, ctx: EvictorContext) -> Sequence[Stored]:  # noqa: ARG002
        return [record._replace(value={}) for record in records]


def panes(values: Sequence[tuple[Any, ...]], **parts: Any) -> list[Any]:  # noqa: ANN401 - parts of a spec
    counted = (aggregate("count"), aggregate("sum", "bigint"))
    operator = WindowSpec(assigner=Tumbling(size_ms=10), function=counted, **parts).build()
    for rank, value in enumerate(values):
        operator.process(Record("k", rank, value, (0, rank), rank))
    operator.advance_watermark(MAX_TIME_MS)
    return [out.values for out in operator.drain() if isinstance(out, Pane)]


def test_an_evictor_gets_chosen_columns_and_the_records_keep_all() -> None:
    evictor = EvictorOnColumns(inner=_KeepSecond(), columns=ColumnsOf((("x", 2),)))
    assert panes([(None, 1, 7), (None, 2, 8), (None, 4, 9)], evictor=evictor) == [(1, 2)]
    with pytest.raises(SpecError, match="_ReturnsNewRecords returned a record"):
        panes([(None, 1, 7)], evictor=EvictorOnColumns(inner=_ReturnsNewRecords(), columns=ColumnsOf((("x", 2),))))


def test_a_null_measure_does_not_fire_and_is_not_evicted() -> None:
    values = [(None, 1, None), (None, 2, 0), (None, 4, None), (None, 8, 50), (None, 16, None)]
    delta = DeltaExceeded(10, measure=Measure(2))
    assert panes(values, trigger=delta, leftovers="report") == [(4, 15)]
    assert panes(values, evictor=KeepClose(threshold=10, measure=Measure(2))) == [(5, 31)], (
        "the last record has a null, so nothing is evicted"
    )
    assert panes(values[:4], evictor=KeepClose(threshold=10, measure=Measure(2))) == [(3, 13)]


@pytest.mark.parametrize(
    ("choose", "message"),
    [
        (lambda _records: None, "returned None; an evictor returns a list"),
        (lambda records: [records[0]] * 2, "returned a record twice, or records in another order"),
        (lambda records: [records[-1]] * len(records), "returned a record twice, or records in another order"),
        (lambda records: records[::-1], "returned a record twice, or records in another order"),
    ],
    ids=["nothing", "twice", "as_many", "reversed"],
)
def test_an_evictor_returns_records_once_and_in_order(choose: Callable[..., Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        panes([(None, 1, 7), (None, 2, 8)], evictor=EvictorOnColumns(inner=_Keeps(choose), columns=ColumnsOf(())))


@dataclass(frozen=True, slots=True)
class _EverySecond(Trigger):
    """Counts the records of a window under a name, and returns `result` at every second one."""

    name: str
    result: Any = FIRE
    can_merge = True

    def on_record(self, record: Record, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002
        assert set(ctx.state) <= {self.name}, "the state has only what the trigger stored"
        count = ctx.state[self.name] = ctx.state.get(self.name, 0) + 1
        return CONTINUE if count % 2 else self.result

    def on_merge(self, window: Window, merged: Sequence[TriggerContext], ctx: TriggerContext) -> None:  # noqa: ARG002
        ctx.state[self.name] = sum(other.state.get(self.name, 0) for other in merged)


def _outputs(trigger: _EverySecond, parts: dict[str, Any], after_ms: int | None) -> list[Any]:
    """Play nine records, and again with restored checkpoints; return the panes."""
    users: Trigger = TriggerOnColumns(inner=trigger, columns=ColumnsOf(()))
    if after_ms is not None:
        users = ProcessingTimeout(inner=users, timeout_ms=after_ms)
    harness = Harness(WindowSpec(function=(aggregate("count"),), trigger=users, leftovers="report", **parts))
    for at_ms in range(9):
        harness.clock(at_ms)
        harness.record("a", (1,), at_ms=at_ms)
    harness.finish()
    harness.check_resumable()
    return [(out.values, out.kind, out.mode, out.timestamp_ms) for out in harness.outputs if isinstance(out, Pane)]


@pytest.mark.parametrize("name", ["finished", "hold_ms", "timeout_ms", "timeout_shared", "$starts_anew", "$users"])
@pytest.mark.parametrize(
    ("parts", "result", "after_ms"),
    [
        ({"assigner": Session(gap_ms=3)}, FIRE, None),
        ({"assigner": Tumbling(size_ms=10)}, FIRE_AND_PURGE, None),
        ({"assigner": Tumbling(size_ms=10), "timestamp_combiner": "latest"}, FIRE, None),
        ({"assigner": Tumbling(size_ms=10)}, FIRE, 1),
    ],
    ids=["sessions", "purging", "combiner", "timeout"],
)
def test_a_users_trigger_may_store_state_under_any_name(
    name: str, parts: dict[str, Any], result: TriggerResult, after_ms: int | None
) -> None:
    expected = _outputs(_EverySecond("seen", result), parts, after_ms)
    assert expected
    assert _outputs(_EverySecond(name, result), parts, after_ms) == expected


def test_a_users_trigger_that_finishes_leaves_a_tombstone() -> None:
    trigger = _Finishes()
    harness = Harness(WindowSpec(
        assigner=Session(gap_ms=3), function=(aggregate("count"),), leftovers="report",
        trigger=TriggerOnColumns(inner=trigger, columns=ColumnsOf(())),
    ))  # fmt: skip
    for at_ms in range(3):
        harness.record("a", (1,), at_ms=at_ms)
    harness.watermark(MAX_TIME_MS)
    assert [(out.values, out.kind) for out in harness.outputs if isinstance(out, Pane)] == [((1,), "result")], (
        "a finished trigger's pane is not superseded"
    )


class _Finishes(Trigger):
    can_merge = True

    def on_record(self, record: Record, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002
        if "is_over" in ctx.state:
            return PURGE
        ctx.state["is_over"] = True
        return FINISH

    def on_merge(self, window: Window, merged: Sequence[TriggerContext], ctx: TriggerContext) -> None:  # noqa: ARG002
        ctx.state.update(merged[0].state)


@pytest.mark.parametrize("result", [None, True, "FIRE"])
def test_a_users_trigger_that_returns_something_else_is_refused(result: object) -> None:
    trigger = TriggerOnColumns(inner=_EverySecond("seen", result), columns=ColumnsOf(()))
    with pytest.raises(SpecError, match=f"_EverySecond.on_record returned {result!r}; a trigger returns CONTINUE"):
        panes([(None, 1, 7), (None, 2, 8)], trigger=trigger, leftovers="report")
