"""The result of one check as plain data, independent of Great Expectations."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one check of one table.

    `exception` is set if the check itself failed; then it is unknown whether the data is good. `description` is the
    suite's own text about the check. `arguments` is the demand as JSON, without the columns. `observed` is a JSON
    object with some of these keys: `value` (of an aggregate, or of the one row of `run`), `values` (distinct ones),
    `rows`, `missing` (nulls), `unexpected` (rows that break the demand), `share` (unexpected of the rows with a value),
    `sample` (at most 20 distinct unexpected values), `absent` (at most 20 required values that were not found), and
    `note` (why there is no value).
    """

    index: int
    check: str
    columns: tuple[str, ...]
    severity: str
    success: bool
    exception: str | None
    observed: str
    arguments: str
    description: str
