"""What came of one check: plain data, independent of Great Expectations."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One check of one table.

    `exception` is set when the check itself broke, which is not a failure: nobody knows whether the data is good.
    `observed` is a JSON object: `value` (of an aggregate, or of a run's one row), `values` (distinct ones),
    `unexpected` of `rows`, `share`, `missing`, a `sample` of at most 20 distinct unexpected values, and a `note`.
    `arguments` is the demand as JSON, without the columns.
    """

    index: int
    check: str
    columns: tuple[str, ...]
    severity: str
    success: bool
    exception: str | None
    observed: str
    arguments: str
    unexpected_count: int | None
    element_count: int | None
    description: str
