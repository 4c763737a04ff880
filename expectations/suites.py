"""A suite as plain data: the checks of a table, in order. The loader creates and validates these values."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WINDOW_OUTPUTS = "window_outputs"
LATE_RECORDS = "late_records"
RUN = "run"
TABLES = (WINDOW_OUTPUTS, LATE_RECORDS, RUN)

RUN_COLUMNS: Mapping[str, str] = {
    "slice_id": "string",
    "records_read": "bigint",
    "assigned": "bigint",
    "late": "bigint",
    "unassigned": "bigint",
    "invalid": "bigint",
    "filtered": "bigint",
    "duplicate": "bigint",
    "panes": "bigint",
    "late_share": "double",
    "unassigned_share": "double",
    "invalid_share": "double",
    "filtered_share": "double",
    "duplicate_share": "double",
    "watermark_ms": "bigint",
    "watermark_behind_by_ms": "bigint",
}
"""The columns of the table `run`, whose one row describes a run. Shares are of the records read; 0.0 without any.

`watermark_behind_by_ms` is the end of the slice minus the watermark after it; null without a watermark.
"""

SEVERITIES = ("info", "warning", "critical")
"""Great Expectations' severities, from the least to the most severe."""


def severity_rank(severity: str) -> int:
    """Return 0 for the least severe, then 1 and so on. An unknown severity ranks above all known ones."""
    return SEVERITIES.index(severity) if severity in SEVERITIES else len(SEVERITIES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One expectation of a suite.

    `index` is its position in the suite, counted from 0. `kwargs` are Great Expectations' own arguments.
    """

    index: int
    type: str
    kwargs: Mapping[str, Any]
    severity: str = "critical"
    description: str = ""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the check reads, in the order of its arguments; empty for a check of the whole table."""
        single = (self.kwargs.get(name) for name in ("column", "column_A", "column_B"))
        several = self.kwargs.get("column_list", ()) if self.type not in SHAPE_CHECKS else ()
        return tuple(dict.fromkeys([*(name for name in single if name is not None), *several]))

    @property
    def required_columns(self) -> frozenset[str]:
        """The columns that the table must have: those of the arguments and of the row condition.

        A set or a list of columns that a check compares with those of the table is not among them.
        """
        return frozenset(self.columns) | condition_columns(self.kwargs.get("row_condition"))

    @property
    def read_columns(self) -> frozenset[str]:
        """The columns whose values the check reads; empty for a check of the columns."""
        return frozenset() if self.type in SHAPE_CHECKS else self.required_columns

    @property
    def arguments(self) -> str:
        """The demand as canonical JSON: the arguments without the columns, unless the check is about columns."""
        demanded = {key: value for key, value in self.kwargs.items() if key not in COLUMN_ARGUMENTS}
        if self.type in SHAPE_CHECKS:
            demanded = dict(self.kwargs)
        return json.dumps(demanded, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


COLUMN_ARGUMENTS = frozenset({"column", "column_A", "column_B", "column_list"})

SHAPE_CHECKS = frozenset(
    {
        "expect_column_to_exist",
        "expect_table_column_count_to_be_between",
        "expect_table_column_count_to_equal",
        "expect_table_columns_to_match_ordered_list",
        "expect_table_columns_to_match_set",
    }
)
"""Checks of the set of columns. A table must keep all its columns for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """The checks of one table, never empty."""

    name: str
    table: str
    checks: tuple[Check, ...]

    @property
    def columns(self) -> frozenset[str] | None:
        """The columns that the suite reads; None if it needs all, because it checks the set of columns."""
        if any(check.type in SHAPE_CHECKS for check in self.checks):
            return None
        return frozenset().union(*(check.read_columns for check in self.checks))


def condition_columns(condition: object) -> frozenset[str]:
    """Return every column that a structured row condition names, at any depth."""
    if not isinstance(condition, dict):
        return frozenset()
    parts = condition.get("conditions")
    if parts is not None:
        return frozenset().union(*(condition_columns(part) for part in parts))
    return frozenset({condition["column"]["name"]})


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteFile:
    """All suites of one file, by table.

    `content` is the canonical JSON of the file. It is equal for files that differ only in white space or key order.
    """

    path: Path
    suites: Mapping[str, Suite]
    content: str

    @property
    def document(self) -> Mapping[str, Any]:
        """The file as plain data. The fingerprint of the checks is computed from it."""
        return dict(json.loads(self.content))

    def __iter__(self) -> Iterator[Suite]:
        """Iterate over the suites in the order in which the tables are checked."""
        return iter(self.suites[table] for table in TABLES if table in self.suites)
