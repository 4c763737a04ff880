"""The libraries that take long to import. Each is imported when one of its names is first used.

A module imports them here, at its beginning. So a command that reads no table imports no Arrow, and a module of the
core may name types of Arrow and still need the standard library only.
"""

from functools import partial
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["duckdb", "np", "pa", "pads", "pafs", "pc", "pd", "pq"]


class _Library(ModuleType):
    """A module that is imported when one of its names is first used.

    The names of the library become own names, so the next use takes no call. A name that the library gets later, such
    as a submodule that something else imports, is looked up there.
    """

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any name of a library
        library = import_module(self.__name__)
        vars(self).update({"__getattr__": partial(getattr, library)} | vars(library))
        self.__class__ = ModuleType  # type: ignore[assignment]  # the interpreter makes its use as fast as of any module
        return getattr(library, name)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how Spark's workers get the library: they import it."""
        return import_module, (self.__name__,)


if TYPE_CHECKING:
    import duckdb
    import numpy as np
    import pandas as pd
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as pads
    import pyarrow.fs as pafs
    import pyarrow.parquet as pq
else:
    duckdb = _Library("duckdb")
    np = _Library("numpy")
    pa = _Library("pyarrow")
    pd = _Library("pandas")
    pc = _Library("pyarrow.compute")
    pads = _Library("pyarrow.dataset")
    pafs = _Library("pyarrow.fs")
    pq = _Library("pyarrow.parquet")
