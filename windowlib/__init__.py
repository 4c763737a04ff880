"""Windows over event time in pure Python: assigners, triggers, evictors, functions, timers, watermarks, one operator.

The library reads no clock and does no I/O. Start with `WindowSpec`.
docs/reference/conformance.md lists what agrees with which engine.
docs/reference/checkpoints.md describes the stored state.

This module exports the names that users import (`from windowlib import Tumbling`). The stub beside it, `__init__.pyi`,
has them. Each name is imported on first access (PEP 562), so `import windowlib.errors` loads nothing else. Modules of
Hindcast import from the defining module. To add or remove a public name, change the stub and the list in
tests/windowlib/test_public_names.py.
"""

_NAMES: dict[str, tuple[str, str]] = {}


def _public_names() -> dict[str, tuple[str, str]]:
    """Return each name of the stub -> the module that defines it, and its name there. The stub is read once."""
    if _NAMES:
        return _NAMES
    import ast
    from pkgutil import get_data

    names: dict[str, tuple[str, str]] = {}
    for node in ast.parse(get_data(__name__, "__init__.pyi") or b"").body:
        match node:
            case ast.ImportFrom(module=str(module), names=aliases):
                names |= {alias.asname or alias.name: (module, alias.name) for alias in aliases}
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name(id=imported)):
                names[name] = names.pop(imported)
            case _:
                pass
    _NAMES.update(names)
    return _NAMES


def __getattr__(name: str) -> object:
    """Return a public name from its defining module and keep it here. Raises AttributeError: the name is not public."""
    if name == "__all__":
        return sorted(_public_names())
    if name.startswith("_") or name not in _public_names():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module, own_name = _public_names()[name]
    member = globals()[name] = getattr(import_module(module), own_name)
    return member


def __dir__() -> list[str]:
    """Return the public names and the submodules that are loaded."""
    return sorted({*globals(), *_public_names()})
