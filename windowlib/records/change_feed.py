"""The column of Delta's change data feed that tells what happened to a row. Source: the Delta protocol."""

from typing import Final

CHANGE_TYPE: Final = "_change_type"
INSERT: Final = "insert"
