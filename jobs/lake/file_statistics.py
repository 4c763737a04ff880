"""Statistics of a Parquet file for Delta's log, from its footer. Source: the Delta protocol, "Per-file Statistics".

A reader skips a file by its statistics, so a bound that is too narrow loses rows. Columns without a safe bound get
none:
- FLOAT and DOUBLE: a footer does not tell whether a column has a NaN, and Spark orders NaN above all numbers.
- DECIMAL: a JSON number of many digits may be rounded by its reader.
- columns inside structs, lists and maps, BOOLEAN and BINARY: no query of ours skips files by them.
"""

from collections.abc import Set as AbstractSet
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

MAX_TEXT: Final = 32
"""How many characters of a text are stored, as in Delta on Spark."""
_LAST: Final = "\U0010ffff"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_ONE: Final = date(1970, 1, 1)

Bound = int | str


def file_statistics(
    footer: "pq.FileMetaData", *, columns: AbstractSet[str] | None = None, max_text: int = MAX_TEXT
) -> dict[str, object]:
    """Return `numRecords`, and `minValues`, `maxValues` and `nullCount` of the columns that have them.

    Args:
        footer: the metadata of a Parquet file.
        columns: the columns that get them, if they have any; all when None.
        max_text: a bound of a text column keeps this many characters; a shortened upper bound is rounded up.
    """
    if columns is not None and not columns:
        return {"numRecords": footer.num_rows}
    schema = footer.schema.to_arrow_schema()
    found: dict[str, dict[str, Bound]] = {"minValues": {}, "maxValues": {}, "nullCount": {}}
    for index in range(footer.num_columns):
        column = footer.schema.column(index)
        if column.max_definition_level > 1 or column.path != column.name or column.name not in schema.names:
            continue
        if columns is not None and column.name not in columns:
            continue
        nulls, bounds = _column(footer, index)
        if nulls is not None:
            found["nullCount"][column.name] = nulls
        if bounds is not None:
            low = _bound(bounds[0], schema.field(column.name).type, is_upper=False, max_text=max_text)
            high = _bound(bounds[1], schema.field(column.name).type, is_upper=True, max_text=max_text)
            if low is not None and high is not None:
                found["minValues"][column.name], found["maxValues"][column.name] = low, high
    return {"numRecords": footer.num_rows, **found}


def _column(footer: "pq.FileMetaData", index: int) -> tuple[int | None, tuple[object, object] | None]:
    """Return the number of nulls and the stored least and greatest value of a column; None for unknown."""
    nulls: int | None = 0
    low: object = None
    high: object = None
    is_bounded = True
    for group in range(footer.num_row_groups):
        chunk = footer.row_group(group).column(index)
        one = chunk.statistics if chunk.is_stats_set else None
        nulls = nulls + one.null_count if nulls is not None and one is not None and one.has_null_count else None
        if one is None or not one.has_min_max:
            # A group that has only nulls has no bounds, and needs none.
            is_empty = one is not None and one.has_null_count and one.null_count == chunk.num_values
            is_bounded = is_bounded and is_empty
        else:
            low = one.min_raw if low is None else min(low, one.min_raw)
            high = one.max_raw if high is None else max(high, one.max_raw)
    return nulls, (low, high) if is_bounded and low is not None else None


def _bound(raw: object, kind: "pa.DataType", *, is_upper: bool, max_text: int) -> Bound | None:
    """Return a bound as Delta writes it, never inside of the true bound; None if it cannot be written."""
    import pyarrow as pa

    if isinstance(raw, bytes):
        return _text(raw, is_upper=is_upper, max_text=max_text) if _is_text(kind) else None
    if not isinstance(raw, int) or isinstance(raw, bool):
        return None
    if pa.types.is_signed_integer(kind):
        return raw
    return _time(raw, kind, is_upper=is_upper)


def _time(raw: int, kind: "pa.DataType", *, is_upper: bool) -> str | None:
    import pyarrow as pa

    try:
        if pa.types.is_date32(kind):
            return (_DAY_ONE + timedelta(days=raw)).isoformat()
        if not pa.types.is_timestamp(kind) or kind.unit != "us":
            return None
        at_ms = -(-raw // 1_000) if is_upper else raw // 1_000  # Delta keeps milliseconds
        text = (_EPOCH + timedelta(milliseconds=at_ms)).replace(tzinfo=None).isoformat(timespec="milliseconds")
    except OverflowError:  # a year outside 1 to 9999
        return None
    return text if kind.tz is None else f"{text}Z"


def _is_text(kind: "pa.DataType") -> bool:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _text(raw: bytes, *, is_upper: bool, max_text: int) -> str | None:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        return None
    if len(text) <= max_text:
        return text
    if not is_upper:
        return text[:max_text]
    # Readers compare texts by code points. The greatest one makes the shortened text greater than the whole text.
    return text if _LAST in text[max_text:] else text[:max_text] + _LAST
