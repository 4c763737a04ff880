"""The `hindcast` command, one module per group of commands."""

import gc
import sys
from types import ModuleType, TracebackType
from typing import Final

# A command imports 80,000 objects that live to its end. With Python's default threshold, the collector would visit them
# again and again (10 % of the time of a short command). Up to this one, it visits none.
gc.set_threshold(100_000, 20, 20)

NO_PLUGINS: Final = ModuleType("pydantic.plugin._loader")
"""Takes the place of pydantic's search for plugins while the models of pipeline files are made.

The search reads the metadata of all installed packages (3 % of the time of a short command).
"""
NO_PLUGINS.__dict__["get_plugins"] = tuple
sys.modules.setdefault(NO_PLUGINS.__name__, NO_PLUGINS)


def _interrupted_quietly(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print nothing if a command is interrupted while its modules are imported, before it handles errors."""
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)


sys.excepthook = _interrupted_quietly
