"""The last step of rows that hold a record of the log: the texts that are not UTF-8, the id and the check."""

import pyarrow as pa

from jobs.plain_text import shortened
from windowlib.columnar.arrow import arrow_type
from windowlib.columnar.row_identity import RowIdentity
from windowlib.columnar.undecodable import (
    UndecodableText,
    escaped,
    escaped_text,
    undecodable_texts,
    without_undecodable,
)
from windowlib.records import tables
from windowlib.records.tables import Table

MAX_SHOWN = 3
"""`detail` shows at most this many texts of a record that are not UTF-8."""
MAX_TEXT = 80
"""`detail` shows at most this many letters of such a text."""


def completed(table: Table, rows: pa.Table) -> pa.Table:
    """Return rows of a side table with all columns, ids and checks. Other columns than those of the table stay.

    `table` is one of `RECORD_TABLES`. `rows` have its content, `record`, `record_id` and `rank`, and perhaps other
    coordinates. Texts of the log may be bytes that are not UTF-8. `detail` then has these texts.
    """
    words = (tables.ROW_ID, tables.ROW_CHECK)
    columns = {name: rows[name].combine_chunks() for name in rows.column_names if name not in words}
    if table.name == tables.INVALID_RECORDS:
        columns |= _decodable(columns["record"], columns["record_id"], columns.get("detail"))
    for name, node in table.columns().items():
        kind = arrow_type(node)
        column = columns.get(name)
        columns[name] = pa.nulls(rows.num_rows, kind) if column is None else column.cast(kind)
    return RowIdentity(table).identified(pa.table(columns))[0]


def _decodable(record: pa.StructArray, record_id: pa.Array, detail: pa.Array | None) -> dict[str, pa.Array]:
    """Return the columns that depend on texts that are not UTF-8. Their bytes are in `undecoded`, by their path."""
    texts: dict[int, list[UndecodableText]] = {}
    for text in undecodable_texts(record):
        texts.setdefault(text.row, []).append(text)
    raws = {row: [(_path(text), text.raw) for text in own] for row, own in texts.items()}
    details = {} if detail is None else dict(enumerate(detail.to_pylist()))
    details |= {row: _detail(own) for row, own in texts.items()}
    rows = range(len(record))
    return {
        "record": without_undecodable(record),
        "record_id": without_undecodable(record_id, escaped),
        "undecoded": pa.array([raws.get(row) for row in rows], arrow_type(tables.UNDECODED)),
        "detail": pa.array([details.get(row) for row in rows], pa.string()),
    }


def _path(text: UndecodableText) -> str:
    return text.path.removeprefix(".")


def _detail(texts: list[UndecodableText]) -> str:
    shown = [f"{_path(text)}: {shortened(escaped_text(text.raw), MAX_TEXT)}" for text in texts[:MAX_SHOWN]]
    more = len(texts) - MAX_SHOWN
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")
