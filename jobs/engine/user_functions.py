"""Finds, imports and ships users' functions, which a pipeline file names as `module:name`.

A module is searched in the directory of the pipeline file first, then on the Python path. Reading a pipeline file
imports nothing. `load` imports the module when a replay is planned. `source_of` only reads its text, for the spec's
fingerprint.
"""

import ast
import hashlib
import importlib.util
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

from jobs.engine.placed_errors import PlacedSpecError
from jobs.pipeline.models.grammar import FunctionGrammar
from jobs.pipeline.models.suggestions import did_you_mean

__all__ = ["Functions"]

_TEXT = "__hindcast_text__"
_OURS = ("jobs", "windowlib", "expectations", "dags")


@dataclass(frozen=True, slots=True)
class _Found:
    """The file of a module. `is_beside`: it is in the directory of the pipeline file, not on the Python path."""

    name: str
    path: Path
    is_beside: bool


@dataclass(frozen=True, slots=True)
class _Text:
    """The text of a module as its hash, and the modules beside the pipeline file that it imports."""

    source: _Found
    digest: str
    imports: tuple[_Found, ...]


@dataclass(slots=True, kw_only=True)
class Functions:
    """The users' functions of one pipeline.

    `source` names the pipeline in errors. `directory` is the directory of the pipeline file.
    """

    source: str
    directory: Path | None = None
    _modules: dict[str, ModuleType] = field(default_factory=dict)
    _used: set[str] = field(default_factory=set)
    """The names of the loaded modules, and of the modules beside the pipeline file that they import."""

    def load(self, grammar: FunctionGrammar, path: str) -> object:
        """Import a function's module and return its attribute of that name; `path` is the key in the file.

        Raises SpecError: the module does not exist, its import fails, or it has no such attribute.
        """
        module_name, _, name = grammar.name.partition(":")
        source = self._find(module_name, path)
        module = self._modules.get(module_name) or self._import(source, path)
        self._modules[module_name] = module
        self._used |= self._texts(source, path).keys()
        if not hasattr(module, name):
            public = [known for known in vars(module) if not known.startswith("_")]
            raise self._error(
                path,
                f"{source.path} has no {name!r}; it has {', '.join(public) or 'nothing'}{did_you_mean(name, public)}",
            )
        return getattr(module, name)

    def source_of(self, grammar: FunctionGrammar, path: str) -> str:
        """Return a text that changes with the function: the hash of its module and of the modules it imports.

        Only modules beside the pipeline file count as imported. If the file gives a `version`, the text is made of the
        version instead.
        Raises SpecError: the module does not exist, or its text cannot be read.
        """
        if grammar.version is not None:
            return f"version {grammar.version}"
        return _hash(grammar.module, self._texts(self._find(grammar.module, path), path))

    def files(self, grammars: Iterable[FunctionGrammar]) -> frozenset[Path]:
        """Return the files of the functions' modules, and of the modules beside the pipeline file that they import.

        Raises SpecError: as for `source_of`.
        """
        sources = ((self._find(grammar.module, grammar.name), grammar.name) for grammar in grammars)
        read = (self._texts(module, path) for module, path in sources)
        return frozenset(text.source.path.resolve() for texts in read for text in texts.values())

    def ship(self) -> None:
        """Make Spark send the modules that `load` imported to its workers by value, so they need no installation.

        Installed packages are not sent. The workers must have them. A function with a cache (`functools.cache`) has an
        empty cache on the workers.
        """
        modules = self.own_modules()
        if not modules:
            return  # nothing imports Spark yet, and a small chunk does not need it
        from pyspark import cloudpickle

        for module in modules:
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
        # Cloudpickle sends other objects by value, but functions with a cache by their name.
        names = frozenset(cloudpickle.list_registry_pickle_by_value())  # type: ignore[no-untyped-call]
        cloudpickle.CloudPickler.dispatch_table[type(lru_cache(_with_cache))] = partial(_reduced, names)

    def own_modules(self) -> list[ModuleType]:
        """Return the loaded modules and those they import beside the pipeline file, without installed packages."""
        loaded = [sys.modules[name] for name in sorted(self._used) if name in sys.modules]
        return [module for module in loaded if not _is_inside(module, _installed("purelib", "platlib", "stdlib"))]

    def _error(self, path: str, problem: str) -> PlacedSpecError:
        return PlacedSpecError.at(self.source, path, problem)

    def _find(self, module_name: str, path: str) -> _Found:
        """Find a module's file without importing anything, also not the packages around it."""
        top = module_name.partition(".")[0]
        if top in _OURS:
            raise self._error(path, f"{module_name!r} is a module of Hindcast; name a module of your own")
        beside = self._beside(module_name, path)
        if beside is not None:
            return beside
        for entry in sys.path:
            with suppress(PermissionError):  # Python skips a directory that it may not read, too
                installed = _file_in(Path(entry or "."), module_name)
                if installed is not None:
                    return _Found(module_name, installed, is_beside=False)
        looked = f"{self.directory} and " if self.directory is not None else ""
        raise self._error(
            path,
            f"there is no module {module_name!r}; looked in {looked}on the Python path for a .py file of that name",
        )

    def _beside(self, module_name: str, path: str) -> _Found | None:
        """Return the file of a module beside the pipeline file. It must not replace a module of another origin."""
        try:
            file = _file_in(self.directory, module_name) if self.directory is not None else None
        except OSError as error:
            raise self._error(path, f"{error.filename} cannot be read: {error.strerror}") from error
        top = module_name.partition(".")[0]
        if file is None or top in _OURS:
            return None
        if top in sys.stdlib_module_names or any(_file_in(place, top) for place in _installed("purelib", "platlib")):
            raise self._error(
                path,
                f"{file} has the same name as the module {top!r} of Python or of an installed package; rename it, or "
                "uninstall the package if it is a copy",
            )
        return _Found(module_name, file, is_beside=True)

    def _import(self, source: _Found, path: str) -> ModuleType:
        """Import a module, unless it is loaded already.

        A module beside the pipeline file is imported again if it, or one that it imports from there, has another file
        or another text than the loaded one.
        """
        texts = self._texts(source, path) if source.is_beside else {}
        hashes = {name: _hash(name, texts) for name in texts}
        changed = {name for name, text in texts.items() if not _is_current(text.source, hashes[name])}
        if changed:
            changed.add(source.name)
        tops = {name.partition(".")[0] for name in changed}  # a package has its modules as attributes
        dropped = {name: sys.modules.pop(name) for name in sorted(sys.modules) if name.partition(".")[0] in tops}
        if source.name in sys.modules:
            return sys.modules[source.name]
        root = str(source.path.resolve().parents[source.name.count(".") + (source.path.name == "__init__.py")])
        sys.path.insert(0, root)
        try:
            importlib.invalidate_caches()
            return importlib.import_module(source.name)
        except (Exception, SystemExit) as error:
            changed.clear()
            raise self._error(
                path,
                f"importing {source.path} failed: {type(error).__name__}: {error}. Correct the module; try it with "
                f"`python -c 'import {source.name}'` in {root}",
            ) from error
        finally:
            sys.path.remove(root)
            for name in hashes.keys() & sys.modules.keys():
                vars(sys.modules[name]).setdefault(_TEXT, hashes[name])
            _put_back({name: module for name, module in dropped.items() if name not in changed})

    def _texts(self, source: _Found, path: str) -> dict[str, _Text]:
        """Return a module's text and, if it is beside the pipeline file, those of its imports from there, by name."""
        texts: dict[str, _Text] = {}
        unread = [source]
        while unread:
            file = unread.pop()
            if file.name not in texts:
                texts[file.name] = self._text(file, path)
                unread += texts[file.name].imports
        return texts

    def _text(self, source: _Found, path: str) -> _Text:
        try:
            text = source.path.read_text("utf-8")
            tree = ast.parse(text) if source.is_beside else None
        except (OSError, SyntaxError, ValueError) as error:
            raise self._error(path, f"{source.path} cannot be read as Python: {error}") from error
        names = () if tree is None else dict.fromkeys((*_packages(source), *_imported(tree, source)))
        imports = tuple(file for name in names if (file := self._beside(name, path)) is not None)
        return _Text(source, hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).hexdigest(), imports)


def _reduced(names: Set[str], cached: Any) -> Any:  # noqa: ANN401 - typeshed has no class for either
    """Return how to send a function with a cache: those of the modules `names` by value, and others by name."""
    if cached.__module__ not in names:
        return cached.__reduce__()
    return _with_cache, (cached.__wrapped__, cached.cache_parameters())


def _with_cache(function: Callable[..., object], parameters: Mapping[str, Any]) -> object:
    return lru_cache(**parameters)(function)


def _hash(name: str, texts: Mapping[str, _Text]) -> str:
    """Return the hash of a module's text and of the texts that it imports, at any depth."""
    covered, further = {name}, [name]
    while further:
        names = {file.name for file in texts[further.pop()].imports} - covered
        covered |= names
        further += names
    joined = "\0".join(f"{each}\0{texts[each].digest}" for each in sorted(covered))
    return hashlib.sha256(joined.encode("utf-8")).hexdigest()


def _put_back(modules: Mapping[str, ModuleType]) -> None:
    """Make modules known again unless others have their names; those of a package are also attributes of it."""
    for name, module in modules.items():
        package, _, attribute = name.rpartition(".")
        if sys.modules.setdefault(name, module) is module and package in sys.modules:
            vars(sys.modules[package]).setdefault(attribute, module)


def _installed(*kinds: str) -> tuple[Path, ...]:
    paths = sysconfig.get_paths()
    return tuple(Path(paths[kind]) for kind in kinds)


def _file_in(directory: Path, module_name: str) -> Path | None:
    stem = directory.joinpath(*module_name.split("."))
    return next((file for file in (stem.with_suffix(".py"), stem / "__init__.py") if file.is_file()), None)


def _packages(source: _Found) -> Iterator[str]:
    """Yield the names of the packages of a module that have an `__init__.py`: Python runs it before the module."""
    parts = source.name.split(".")
    top = source.path.parents[len(parts) - 1 + (source.path.name == "__init__.py")]
    for count in range(1, len(parts)):
        if top.joinpath(*parts[:count], "__init__.py").is_file():
            yield ".".join(parts[:count])


def _imported(tree: ast.Module, source: _Found) -> Iterator[str]:
    """Yield the dotted name of every module that the text may import."""
    package = source.name if source.path.name == "__init__.py" else source.name.rpartition(".")[0]
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


def _is_current(source: _Found, text: str) -> bool:
    """Return whether no module of this name is loaded, or one from this file with these texts."""
    loaded = sys.modules.get(source.name)
    if loaded is None:
        return True
    is_same_file = loaded.__file__ is not None and Path(loaded.__file__).resolve() == source.path.resolve()
    return is_same_file and vars(loaded).get(_TEXT, text) == text


def _is_inside(module: ModuleType, directories: tuple[Path, ...]) -> bool:
    return module.__file__ is None or any(Path(module.__file__).is_relative_to(directory) for directory in directories)
