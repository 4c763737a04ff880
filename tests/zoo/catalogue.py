"""All entries of the zoo."""

from collections.abc import Collection, Sequence

from tests.zoo.entries import Entry
from tests.zoo.forms import form_entries
from tests.zoo.iceberg_forms import iceberg_entries
from tests.zoo.parquet_forms import parquet_entries
from tests.zoo.random_logs import random_entries
from tests.zoo.spark_forms import spark_entries
from tests.zoo.types import type_entries

_EVERY: Sequence[Entry] = (
    *form_entries(),
    *parquet_entries(),
    *iceberg_entries(),
    *spark_entries(),
    *type_entries(),
    *random_entries(),
)

UNFROZEN = frozenset(f"random logs {number}" for number in range(1, 8))
"""Entries that have no answer yet. `python -m tests.zoo freeze NAME` writes it; then remove the name here."""

CATALOGUE: Sequence[Entry] = tuple(entry for entry in _EVERY if entry.name not in UNFROZEN)


def entries_named(texts: Collection[str]) -> list[Entry]:
    """Return the entries whose name or table is one of these texts, frozen or not; the catalogue without a text.

    Raises:
        ValueError: no entry has this name or table.
    """
    unknown = sorted({*texts} - {one for entry in _EVERY for one in (entry.name, entry.table)})
    if unknown:
        raise ValueError(f"no entry of the zoo is named {', '.join(unknown)}; `python -m tests.zoo list` lists all")
    return [one for one in _EVERY if one.name in texts or one.table in texts] if texts else [*CATALOGUE]
