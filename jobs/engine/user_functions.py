"""Users' own functions, named `module:name` in a pipeline file: found, imported, shipped to Spark's workers.

A module is looked for in the directory of the pipeline file first, then on the Python path. Reading a pipeline file
imports nothing; `load` does, when a replay is planned. `source_of` reads text only, for the spec's fingerprint.
"""

import ast
import hashlib
import importlib.util
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from jobs.pipeline.models.grammar import FunctionGrammar
from jobs.pipeline.models.suggestions import did_you_mean
from windowlib.errors import SpecError

__all__ = ["Functions"]

_TEXT = "__hindcast_text__"
_OURS = ("jobs", "windowlib", "expectations", "dags")


@dataclass(frozen=True, slots=True)
class _Found:
    """Where a module is; `is_beside` the pipeline file, or on the Python path."""

    name: str
    path: Path
    is_beside: bool


@dataclass(slots=True, kw_only=True)
class Functions:
    """The functions of one pipeline; `source` is the pipeline's name in errors, `directory` that of its file."""

    source: str
    directory: Path | None = None
    _modules: dict[str, ModuleType] = field(default_factory=dict)
    _used: set[str] = field(default_factory=set)
    """The names of the loaded modules, and of those beside the pipeline file that they import."""

    def load(self, grammar: FunctionGrammar, path: str) -> object:
        """Import a function's module and return what the name stands for; `path` is the key that names it.

        Raises:
            SpecError: no such module, it does not import, or it has no such name.
        """
        module_name, _, name = grammar.name.partition(":")
        found = self._find(module_name, path)
        module = self._modules.get(module_name) or _import(found, self._where(path))
        self._modules[module_name] = module
        self._used |= {name for name, _, _ in self._texts(found, path, seen=set())}
        if not hasattr(module, name):
            public = [one for one in vars(module) if not one.startswith("_")]
            raise SpecError(
                f"{self._where(path)}: {found.path} has no {name!r}; it has {', '.join(public) or 'nothing'}"
                f"{did_you_mean(name, public)}"
            )
        return getattr(module, name)

    def source_of(self, grammar: FunctionGrammar, path: str) -> str:
        """Return the hash of all that a function is: its module's text and that of the modules beside it that it uses.

        With a `version` in the file, that stands for all of it.

        Raises:
            SpecError: no such module, or its text cannot be read.
        """
        if grammar.version is not None:
            return f"version {grammar.version}"
        texts = {name: text for name, _, text in self._texts(self._find(grammar.module, path), path, seen=set())}
        joined = "\0".join(f"{name}\0{texts[name]}" for name in sorted(texts))
        return hashlib.sha256(joined.encode("utf-8", errors="surrogatepass")).hexdigest()

    def files(self, grammars: Iterable[FunctionGrammar]) -> frozenset[Path]:
        """Return the files of the functions' modules, and of those beside the pipeline file that they import.

        Raises:
            SpecError: as for `source_of`.
        """
        found = ((self._find(one.module, one.name), one.name) for one in grammars)
        read = (self._texts(module, path, seen=set()) for module, path in found)
        return frozenset(file.resolve() for texts in read for _, file, _ in texts)

    def ship(self) -> None:
        """Let Spark's workers have the modules that `load` imported, by value: they need not be installed there.

        Installed packages are expected on the workers.
        """
        from pyspark import cloudpickle

        for module in self.own_modules():
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]

    def own_modules(self) -> list[ModuleType]:
        """Return the modules to ship: those that were loaded and are no installed packages, and those they use."""
        found = [sys.modules[name] for name in sorted(self._used) if name in sys.modules]
        return [module for module in found if not _lies_in(module, _installed("purelib", "platlib", "stdlib"))]

    def _where(self, path: str) -> str:
        return f"{self.source}: {path}"

    def _find(self, module_name: str, path: str) -> _Found:
        """Find a module's file without importing anything, not even the packages that it lies in."""
        top = module_name.partition(".")[0]
        if top in _OURS:
            raise SpecError(f"{self._where(path)}: {module_name!r} is a module of Hindcast; name one of your own")
        beside = _file_in(self.directory, module_name) if self.directory is not None else None
        if beside is not None:
            if top in sys.stdlib_module_names or _is_installed(top):
                raise SpecError(
                    f"{self._where(path)}: {beside} is named like the module {top!r} of Python or of an installed "
                    "package; rename it"
                )
            return _Found(module_name, beside, is_beside=True)
        for entry in sys.path:
            installed = _file_in(Path(entry or "."), module_name)
            if installed is not None:
                return _Found(module_name, installed, is_beside=False)
        looked = f"{self.directory} and " if self.directory is not None else ""
        raise SpecError(
            f"{self._where(path)}: there is no module {module_name!r}; looked in {looked}on the Python path "
            "for a .py file of that name"
        )

    def _texts(self, found: _Found, path: str, *, seen: set[str]) -> Iterator[tuple[str, Path, str]]:
        """Yield (module, file, text) of a module and, if it is beside the pipeline file, of those it imports there."""
        seen.add(found.name)
        try:
            text = found.path.read_text("utf-8")
            tree = ast.parse(text) if found.is_beside else None
        except (OSError, SyntaxError, ValueError) as error:
            raise SpecError(f"{self._where(path)}: {found.path} cannot be read as Python: {error}") from error
        yield found.name, found.path, text
        for name in _imported(tree, found) if tree is not None else ():
            is_new = name not in seen and name.partition(".")[0] not in _OURS
            used = _file_in(self.directory, name) if self.directory is not None and is_new else None
            if used is not None:
                yield from self._texts(_Found(name, used, is_beside=True), path, seen=seen)


def _installed(*kinds: str) -> tuple[Path, ...]:
    paths = sysconfig.get_paths()
    return tuple(Path(paths[kind]) for kind in kinds)


def _is_installed(top: str) -> bool:
    return any(_file_in(directory, top) is not None for directory in _installed("purelib", "platlib"))


def _file_in(directory: Path, module_name: str) -> Path | None:
    stem = directory.joinpath(*module_name.split("."))
    return next((one for one in (stem.with_suffix(".py"), stem / "__init__.py") if one.is_file()), None)


def _imported(tree: ast.Module, found: _Found) -> Iterator[str]:
    """Yield every module that the text may import, by its dotted name."""
    package = found.name if found.path.name == "__init__.py" else found.name.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                outer = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*outer, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}".lstrip(".") for alias in node.names)


def _import(found: _Found, where: str) -> ModuleType:
    """Import a module; one beside the pipeline file anew if its file or its text is another than that loaded before."""
    loaded = sys.modules.get(found.name)
    if loaded is not None and (not found.is_beside or _is_current(loaded, found)):
        return loaded
    for name in [one for one in sys.modules if one == found.name or one.startswith(f"{found.name}.")]:
        del sys.modules[name]
    root = str(found.path.resolve().parents[found.name.count(".") + (found.path.name == "__init__.py")])
    sys.path.insert(0, root)
    try:
        importlib.invalidate_caches()
        module = importlib.import_module(found.name)
    except (Exception, SystemExit) as error:
        raise SpecError(
            f"{where}: importing {found.path} failed: {type(error).__name__}: {error}. Mend the module; try it with "
            f"`python -c 'import {found.name}'` in {root}"
        ) from error
    finally:
        sys.path.remove(root)
    vars(module)[_TEXT] = _text_of(found)
    return module


def _is_current(loaded: ModuleType, found: _Found) -> bool:
    is_same_file = loaded.__file__ is not None and Path(loaded.__file__).resolve() == found.path.resolve()
    return is_same_file and vars(loaded).get(_TEXT, _text_of(found)) == _text_of(found)


def _text_of(found: _Found) -> str:
    return hashlib.sha256(found.path.read_bytes()).hexdigest()


def _lies_in(module: ModuleType, directories: tuple[Path, ...]) -> bool:
    return module.__file__ is None or any(Path(module.__file__).is_relative_to(one) for one in directories)
