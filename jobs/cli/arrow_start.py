"""Starts pyarrow without pandas, whose import costs 0.4 s."""

import sys

from windowlib.libraries import pa


def keep_pandas_out() -> None:
    """Let pyarrow believe in this process that pandas is not installed.

    pyarrow looks for pandas once, when it first converts Python values. Programs can still import pandas later, and
    `to_pandas` and `from_pandas` work. Only `pyarrow.array` no longer recognises a series or a `pandas.NaT`.
    """
    if "pandas" in sys.modules:
        return
    sys.meta_path.insert(0, _NoPandas)
    try:
        pa.array([0])  # converts a value: an empty list would not end the search for pandas
    finally:
        sys.meta_path.remove(_NoPandas)


class _NoPandas:
    """A finder of modules that refuses pandas and leaves all others to the next finders."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:  # noqa: ARG004
        if name == "pandas":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
