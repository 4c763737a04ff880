"""Finds the rows that do not keep a check, to show a few of them to a person. Great Expectations is not used."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from expectations.compiled.columns import Rows
from expectations.compiled.compiler import compile_check
from expectations.compiled.row_checks import RowCheck
from expectations.suites import Check


def check_of(kind: str, column: str | None, arguments: str) -> Check | None:
    """Return the check that a stored result describes; None if its arguments are not a JSON object.

    `column` has the columns of the expectation, joined by `, `; None for a check of the whole table. `arguments` are
    the others, as JSON.
    """
    try:
        kwargs = json.loads(arguments)
    except ValueError:
        return None
    if not isinstance(kwargs, dict):
        return None
    return Check(index=0, type=kind, kwargs={**kwargs, **_columns(kind, (column or "").split(", ") if column else [])})


def failing_rows(check: Check, rows: pa.Table) -> list[int] | None:
    """Return the positions of the rows that do not keep a check; None if that cannot be told row by row.

    The answer is None for a check of an aggregate, for an expectation that is not compiled for these types, and if the
    verdict of a row depends on the engine.
    """
    if not rows.num_rows or not check.read_columns <= set(rows.column_names):
        return None
    measure = compile_check(check, rows.schema, 1)
    if not isinstance(measure, RowCheck):
        return None
    positions: list[int] = []
    start = 0
    for batch in rows.select(sorted(check.read_columns)).combine_chunks().to_batches():
        unexpected = measure.unexpected(Rows(np.zeros(batch.num_rows, dtype=np.int64), batch))
        if unexpected is None:
            return None
        positions += (np.flatnonzero(unexpected) + start).tolist()
        start += batch.num_rows
    return positions


def _columns(kind: str, names: list[str]) -> Mapping[str, Any]:
    if "_pair_" in kind and len(names) == 2:  # noqa: PLR2004 -- a pair
        return {"column_A": names[0], "column_B": names[1]}
    if kind.startswith(("expect_compound_", "expect_multicolumn_", "expect_select_")):
        return {"column_list": names}
    return {"column": names[0]} if len(names) == 1 else {}
