"""Record readers: how measures, gaps, watermark rules and evictors of a pipeline read the columns of a record."""

from collections.abc import Sequence
from decimal import Decimal
from math import inf, nan
from typing import Any

import pytest

from windowlib.bounds import MAX_TIME_MS, Window
from windowlib.errors import SpecError
from windowlib.functions.window_functions import aggregate
from windowlib.records.records import Pane, Record, Stored
from windowlib.triggers.flink import DeltaExceeded
from windowlib.windows.assigners import Tumbling
from windowlib.windows.evictors import Evictor, EvictorContext, KeepClose
from windowlib.windows.record_readers import (
    ColumnsOf,
    EvictorOnColumns,
    GapOfColumn,
    Measure,
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
