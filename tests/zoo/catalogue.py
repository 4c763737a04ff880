"""All entries of the zoo."""

from tests.zoo.entries import Entry
from tests.zoo.forms import form_entries
from tests.zoo.spark_forms import spark_entries
from tests.zoo.types import type_entries

CATALOGUE: tuple[Entry, ...] = (*form_entries(), *spark_entries(), *type_entries())


def entries_named(texts: list[str]) -> list[Entry]:
    """Return the entries whose name or table has one of these texts; all entries without a text."""
    return [one for one in CATALOGUE if not texts or any(text in (one.name, one.table) for text in texts)]
