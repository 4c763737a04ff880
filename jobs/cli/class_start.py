"""Makes the methods of dataclasses when they are first called. A command makes 440 dataclasses, and calls few methods.

`dataclasses` of Python 3.11 compiles the texts of up to six methods of each class: an eighth of a command's CPU time.
"""

import dataclasses
from collections.abc import Callable
from functools import cache
from typing import Any

OURS = ("expectations.", "jobs.", "windowlib.")
"""Our classes are pickled by name. Those of users are pickled with their methods, so these are made at once."""
_compiled: Callable[..., Callable[..., Any]] = vars(dataclasses)["_create_fn"]


def make_methods_late() -> None:
    """Let `dataclasses` compile only `__init__` at once, for our classes that this process makes from now on."""
    vars(dataclasses)["_create_fn"] = _created


def _created(name: str, *parts: Any, **more: Any) -> Callable[..., Any]:  # noqa: ANN401 - those of `dataclasses`
    """Return a method that takes the place of itself in its class, as `dataclasses` would have compiled it."""
    if name == "__init__" or not more["globals"].get("__name__", "").startswith(OURS):
        return _compiled(name, *parts, **more)
    compiled = cache(lambda: _compiled(name, *parts, **more))

    def method(self: Any, *others: Any) -> Any:  # noqa: ANN401 - any method of any class
        compiled().__qualname__ = method.__qualname__
        for owner in type(self).__mro__:
            if vars(owner).get(name) is method:
                setattr(owner, name, compiled())
        return compiled()(self, *others)

    method.__name__ = name
    return method
