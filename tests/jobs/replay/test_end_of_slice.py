"""The end of a slice comes after its last record, also after records that move neither the clock nor the watermark."""

from pathlib import Path

from jobs.reading.published import read_published
from tests.support.explained_windows import row, shop_of


def test_the_last_records_of_a_slice_are_processed_before_its_end(tmp_path: Path) -> None:
    """Defect: a last record whose times do not rise was in the first window of the next day."""
    shop = shop_of(tmp_path / "lake", "{tumbling: {size: 1h}, time: processing}")
    shop.append(0, [row(0, at=10.0), row(1, at=9.5, arrived=10.0)])
    shop.append(1, [row(2, at=30.0)])
    shop.run(0, 2)
    rows = read_published(shop.lake, "clicks", shop.work.ledger.view())
    assert [
        (str(start)[:16], n) for start, n in zip(rows["window_start"].to_pylist(), rows["n"].to_pylist(), strict=True)
    ] == [("2026-03-01 10:00", 2), ("2026-03-02 06:00", 1)]
