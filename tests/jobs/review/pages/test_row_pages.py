"""Pages of rows equal a filter, a sort and a cut of the rows in Python, for tables that are read whole or in parts."""

from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from jobs.reading.stored_rows import StoredRuns
from jobs.review.pages import row_pages
from jobs.review.pages.row_filters import Comparison, Filter
from jobs.review.pages.row_pages import RowsAsk, RunRows
from tests.jobs.review.pages.conftest import DAYS, Made
from tests.support.day_chains import Place, Put, run
from tests.support.fuzzing import seeds
from windowlib.errors import RequestError


def expected(rows: list[dict[str, Any]], ask: RowsAsk) -> list[dict[str, Any]]:
    kept = [row for row in rows if ask.filter is None or _keeps(row[ask.filter.column], ask.filter)]
    if ask.sort is not None:
        name = ask.sort
        present = [row for row in kept if row[name] is not None]
        present.sort(key=lambda row: row[name], reverse=ask.is_descending)
        if ask.is_descending:  # equal values keep the stored order
            present.sort(key=lambda row: row["rank"])
            present.sort(key=lambda row: row[name], reverse=True)
        kept = present + [row for row in kept if row[name] is None]
    return kept


def _keeps(value: Any, wanted: Filter) -> bool:  # noqa: ANN401
    if value is None:
        return False
    match wanted.comparison:
        case Comparison.CONTAINS:
            return wanted.value.lower() in str(value).lower()
        case Comparison.EQUALS:
            return str(value) == wanted.value
        case Comparison.AT_LEAST:
            return bool(value >= type(value)(wanted.value))
        case Comparison.AT_MOST:
            return bool(value <= type(value)(wanted.value))


def random_ask(rng: Random) -> RowsAsk:
    filters = (
        None,
        Filter(column="record_id", comparison=Comparison.CONTAINS, value=rng.choice(["b", "%", "_", "'", "Ï", "x"])),
        Filter(column="record_id", comparison=Comparison.EQUALS, value=rng.choice(["a", "b", "c%"])),
        Filter(column="late_by_ms", comparison=Comparison.AT_LEAST, value=str(rng.randrange(20_000))),
        Filter(column="rank", comparison=Comparison.AT_MOST, value=str(rng.randrange(40))),
    )
    return RowsAsk(
        filter=rng.choice(filters),
        sort=rng.choice([None, "late_by_ms", "record_id", "rank"]),
        is_descending=rng.random() < 0.5,
        page=rng.choice([1, 2, 3, 1_000]),
        size=rng.choice([1, 7, 50]),
    )


@pytest.mark.slow
def test_a_page_is_a_part_of_the_filtered_and_sorted_rows(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in seeds(2):
        rng = Random(seed)
        work, late = made(rng)
        view = work.ledger.view()
        for _ in range(12):
            monkeypatch.setattr(row_pages, "BATCH_ROWS", rng.choice([1, 3, 1_000]))
            day, ask, few = rng.choice(DAYS), random_ask(rng), rng.choice([0, None])
            run = view.run(view.published[day])
            own = RunRows(StoredRuns(work.lake, "sales", view, few), run, "late_records")
            if not own.columns():
                continue
            wanted = expected(late[day], ask)
            page = own.page(ask)
            assert (page.total, page.matching) == (len(late[day]), len(wanted)), f"seed {seed}: {ask}"
            assert page.is_compared == (few is None)
            start = page.first - 1 if wanted else 0
            found = page.rows["rank"].to_pylist() if page.rows.num_rows else []
            assert found == [row["rank"] for row in wanted[start : start + ask.size]], f"seed {seed}: {ask}"
            parts = [part["rank"].to_pylist() for part in own.batches(ask) if part.num_rows]
            ranks = [rank for part in parts for rank in part]
            assert sorted(ranks) == sorted(row["rank"] for row in wanted), f"seed {seed}: {ask}"


@pytest.mark.slow
@pytest.mark.parametrize("comparison", Comparison)
def test_any_column_is_compared_with_any_value_or_the_comparison_is_refused(made: Made, comparison: Comparison) -> None:
    work, _ = made(Random(3))
    view = work.ledger.view()
    for table in ("late_records", "window_outputs"):
        own = RunRows(StoredRuns(work.lake, "sales", view), view.run(view.published[DAYS[0]]), table)
        assert own.columns()
        for column in own.columns():
            for value in ("maybe", "true", "1", "-1e400", "2024-01-01", "2024-01-01 05:00", ""):
                with suppress(RequestError):
                    own.page(RowsAsk(filter=Filter(column=column, comparison=comparison, value=value)))


def test_an_unknown_column_and_a_value_of_another_type_are_refused(made: Made) -> None:
    work, _ = made(Random(3))
    view = work.ledger.view()
    own = RunRows(StoredRuns(work.lake, "sales", view), view.run(view.published[DAYS[0]]), "late_records")
    for ask in (
        RowsAsk(sort="row_id"),
        RowsAsk(sort='rank" FROM rows; --'),
        RowsAsk(filter=Filter(column="nope", comparison=Comparison.EQUALS, value="1")),
        RowsAsk(filter=Filter(column="rank", comparison=Comparison.AT_LEAST, value="ten")),
    ):
        with pytest.raises(RequestError):
            own.page(ask)


def test_large_integers_are_compared_exactly(tmp_path: Path) -> None:
    """A double has 2^53, and not 2^53 + 1."""
    place, large = Place(tmp_path), 2**53
    place.put(Put(0, 1, large), Put(0, 5, large + 1), Put(0, 9, large + 2), Put(0, 20))
    work = place.work()
    run(work, 0, 1)
    view = work.ledger.view()
    own = RunRows(StoredRuns(work.lake, "late", view), view.run(view.published["1970-01-05"]), "window_outputs")

    def totals(comparison: Comparison, value: str) -> list[int]:
        page = own.page(RowsAsk(sort="total", filter=Filter(column="total", comparison=comparison, value=value)))
        return [total - large for total in page.rows["total"].to_pylist()]

    assert totals(Comparison.AT_LEAST, str(large + 1)) == [1, 2]
    assert totals(Comparison.AT_MOST, str(large)) == [0]
    assert totals(Comparison.AT_MOST, f"{large}.5") == [0]
    assert totals(Comparison.AT_MOST, "1e300") == [0, 1, 2]
