"""Plain tables on a disk: their rows are those that Polars and Delta read, also of an earlier version."""

from pathlib import Path

from tests.support.plain_tables import check_plain_table


def test_a_plain_table_is_read_by_others(tmp_path: Path) -> None:
    check_plain_table(str(tmp_path / "p" / "current_window_outputs"))
