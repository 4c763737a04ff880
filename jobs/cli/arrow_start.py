"""Starts pyarrow without pandas, whose import costs 0.4 s, and without texts of help."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from windowlib.libraries import pa


def keep_pandas_out() -> None:
    """Let pyarrow believe in this process that pandas is not installed.

    pyarrow looks for pandas once, when it first converts Python values. Programs can still import pandas later, and
    `to_pandas` and `from_pandas` work. Only `pyarrow.array` no longer recognises a series or a `pandas.NaT`.
    """
    if "pandas" in sys.modules:
        return
    with _hidden("pandas"):
        pa.array([0])  # converts a value: an empty list would not end the search for pandas


def leave_help_out() -> None:
    """Let `pyarrow.compute` make its functions without parsing what their options mean: 2 % of a short command."""
    parser = ModuleType("pyarrow.vendored.docscrape")
    parser.__dict__["NumpyDocString"] = lambda _text: {"Parameters": ()}
    sys.modules.setdefault(parser.__name__, parser)


@contextmanager
def _hidden(name: str) -> Iterator[None]:
    """Make the import of a module fail as if it was not installed."""
    finder = _Hidden(name)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _Hidden:
    """A finder of modules that refuses one name and leaves all others to the next finders."""

    def __init__(self, name: str) -> None:
        self._name = name

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:  # noqa: ARG002
        if name == self._name:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
