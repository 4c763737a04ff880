"""Reads a suite file into a `SuiteFile` without Great Expectations, in milliseconds, so that every plan can read it.

Great Expectations drops a misspelt expectation with a log line and reports success. This module raises a `SpecError`
for every mistake. The error names the file, suite, index, the value that was found, and the closest allowed one.
"""

import difflib
import json
import os
from collections.abc import Collection, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from expectations.catalogue import ADMITTED, NOT_NULL, REFUSED, Shape
from expectations.strict_json import MAX_SHOWN, read_json, short
from expectations.suites import RUN, RUN_COLUMNS, SEVERITIES, TABLES, Check, Suite, SuiteFile
from windowlib.errors import SpecError

EXPECTATIONS_DIR = Path(__file__).resolve().parent
SUITES_VARIABLE = "HINDCAST_EXPECTATIONS"

_SUITE_KEYS = frozenset({"name", "expectations", "meta", "notes"})
_CHECK_KEYS = frozenset({"type", "kwargs", "severity", "description", "meta", "notes"})


def suite_directory(home: Path | None, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the directory of the suites that a pipeline file in the directory `home` may name.

    It is HINDCAST_EXPECTATIONS if that is set. Else it is the first of these directories that exists: `expectations`
    beside the pipeline file, `expectations` beside the directory of the pipeline file, Hindcast's own directory.
    Without a file (`home` is None), only the first and the last apply.
    Raises SpecError: HINDCAST_EXPECTATIONS is not a directory.
    """
    chosen = environ.get(SUITES_VARIABLE)
    if chosen:
        if not Path(chosen).is_dir():
            raise SpecError(f"{SUITES_VARIABLE} is {chosen!r}, which is not a directory; name a directory of suites")
        return Path(chosen)
    if home is not None:
        for directory in (home / EXPECTATIONS_DIR.name, home.parent / EXPECTATIONS_DIR.name):
            if directory.is_dir():
                return directory
    return EXPECTATIONS_DIR


def resolve_suite(text: str, *, root: Path = EXPECTATIONS_DIR) -> Path:
    """Return the path of the suite file that a pipeline names. It must be inside `root`.

    `text` is `expectations/flights.json` or `flights.json`, or an absolute path inside `root`. Symbolic links are
    resolved before the comparison.
    Raises SpecError: the path is outside `root`, is not a `.json` file, or does not exist. The message lists the files
    that exist.
    """
    home = root.resolve()
    given = Path(text)
    if "\0" in text or given.suffix != ".json":
        raise SpecError(f"suite {text!r} is not a .json file; {_available(home)}")
    is_plain = given.is_absolute() or given.parts[0] != EXPECTATIONS_DIR.name
    inside = given if is_plain else Path(*given.parts[1:])
    path = (home / inside).resolve()
    if not path.is_relative_to(home):
        raise SpecError(f"suite {text!r} is outside of {home}, the directory of suites; {_available(home)}")
    try:
        if path.is_file():
            return path
    except OSError as error:  # such as a directory of another user, or a name that is too long for the file system
        raise SpecError(f"suite {text!r} cannot be read in {home}: {error.strerror}") from error
    raise SpecError(f"suite {text!r} does not exist in {home}; {_available(home)}")


def _available(home: Path) -> str:
    names = sorted(path.name for path in home.glob("*.json"))
    return f"name one of: {', '.join(names)}" if names else f"there is no .json file in {home}"


def load_suite_file(path: Path) -> SuiteFile:
    """Return the suites of a file, fully validated except for the existence of columns.

    The file is one object with at least one of the keys `window_outputs`, `late_records` and `run`. Each value is a
    suite in Great Expectations' format without ids: `{"name": ..., "expectations": [{"type", "kwargs", "severity"?,
    "description"?, "meta"?, "notes"?}], "meta"?, "notes"?}`.
    Raises SpecError: the file has something that Great Expectations would reject, drop, or decide differently on its
    two engines.
    """
    document = read_json(path)
    reader = _Reader(path)
    if not isinstance(document, dict) or not document:
        reader.fail("has no suite", "write one JSON object with at least one of the keys " + ", ".join(TABLES))
    reader.keys(document, TABLES, what="table")
    suites = {table: reader.suite(table, raw) for table, raw in document.items()}
    content = json.dumps(document, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return SuiteFile(path=path, suites=suites, content=content)


def check_suite_file(path: Path, *, columns: Mapping[str, Collection[str]] | None = None) -> SuiteFile:
    """Return the suites of a file, fully validated, also that the columns of the checks exist.

    `columns` maps the tables to check to their columns; those of `run` are always checked.
    Raises SpecError: as for `load_suite_file`, or a check names a column that its table does not have.
    """
    loaded = load_suite_file(path)
    known: dict[str, Collection[str]] = {RUN: tuple(RUN_COLUMNS), **(columns or {})}
    for suite in loaded:
        if suite.table not in known:
            continue
        required = frozenset().union(*(check.required_columns for check in suite.checks))
        for name in sorted(required - set(known[suite.table])):
            raise SpecError(
                f"{path}: suite {suite.table}: a check reads the column {name!r}, which {suite.table} does not have; "
                f"{_suggest(name, known[suite.table])}"
            )
    return loaded


class _Reader:
    """Converts raw JSON into suites, and keeps the file and the present place for messages."""

    __slots__ = ("_path", "_place")

    def __init__(self, path: Path) -> None:
        self._path = path
        self._place = ""

    def fail(self, problem: str, wanted: str) -> NoReturn:
        """Raise a `SpecError` with the place, what was found and what to do."""
        raise SpecError(f"{self._path}:{self._place} {problem}; {wanted}")

    def keys(self, raw: Mapping[str, Any], allowed: Collection[str], *, what: str) -> None:
        """Refuse a key that is not allowed, and suggest the closest allowed one."""
        for key in raw:
            if key not in allowed:
                self.fail(f"unknown {what} {short(key)}", _suggest(key, allowed))

    def suite(self, table: str, raw: object) -> Suite:
        self._place = f" suite {table}:"
        if not isinstance(raw, dict):
            self.fail(f"is {_kind(raw)}", "write an object with name and expectations")
        self.keys(raw, _SUITE_KEYS, what="key")
        name, expectations = raw.get("name"), raw.get("expectations")
        if not isinstance(name, str) or not name:
            self.fail(f"has the name {short(name)}", 'give it a name, such as "flights.run"')
        if not isinstance(expectations, list) or not expectations:
            self.fail(
                "has no expectations", "a suite without expectations would always pass: add one, or remove the suite"
            )
        checks = tuple(
            self.check(f"{table}: expectation {index}", index, item) for index, item in enumerate(expectations)
        )
        self._place = f" suite {table}:"
        return Suite(name=name, table=table, checks=checks)

    def check(self, place: str, index: int, raw: object) -> Check:
        self._place = f" suite {place}:"
        if not isinstance(raw, dict):
            self.fail(f"is {_kind(raw)}", "write an object with type and kwargs")
        self.keys(raw, _CHECK_KEYS, what="key")
        kind, kwargs = raw.get("type"), raw.get("kwargs", {})
        shape = self._shape(kind)
        if not isinstance(kwargs, dict):
            self.fail(f"({kind}) has kwargs that are {_kind(kwargs)}", "write an object")
        self._arguments(str(kind), shape, kwargs)
        self._check_meta(raw)
        return Check(
            index=index,
            type=str(kind),
            kwargs=kwargs,
            severity=self._severity(str(kind), raw.get("severity", "critical")),
            description=self._text(raw, "description"),
        )

    def _shape(self, kind: object) -> Shape:
        if not isinstance(kind, str):
            self.fail(f"has the type {short(kind)}", "name an expectation, such as expect_column_values_to_not_be_null")
        if kind in REFUSED:
            self.fail(f"{kind} is refused", REFUSED[kind])
        if kind not in ADMITTED:
            self.fail(f"there is no expectation {short(kind)}", _suggest(kind, ADMITTED))
        return ADMITTED[kind]

    def _arguments(self, kind: str, shape: Shape, kwargs: Mapping[str, Any]) -> None:
        self._place += f" {kind}:"
        self.keys(kwargs, sorted(shape.arguments), what="argument")
        missing = sorted(set(shape.required) - set(kwargs))
        if missing:
            self.fail(f"lacks {', '.join(missing)}", f"found {', '.join(sorted(kwargs)) or 'no argument'}")
        if shape.at_least_one and all(kwargs.get(name) is None for name in shape.at_least_one):
            self.fail(f"has none of {', '.join(shape.at_least_one)}", "it would accept everything: give one")
        for name, value in kwargs.items():
            if value is None and name in shape.optional and name not in NOT_NULL:
                continue
            problem = {**shape.required, **shape.optional}[name](value)
            if problem:
                self.fail(f"{name} = {_shown(value)} {problem}", "change it")
        if "column_A" in kwargs and kwargs["column_A"] == kwargs["column_B"]:
            self.fail(f"compares the column {short(kwargs['column_A'])} with itself", "name two columns")
        self._ordered(kwargs.get("min_value"), kwargs.get("max_value"))
        if shape.never_fails(kwargs):
            self.fail("accepts everything", "give a bound that a value can miss, and a share (`mostly`) above 0")

    def _ordered(self, least: object, most: object) -> None:
        if least is None or most is None:
            return
        if isinstance(least, str) != isinstance(most, str):
            self.fail(
                f"min_value = {short(least)} and max_value = {short(most)} are of different kinds",
                "use numbers or times",
            )
        first, last = (datetime.fromisoformat(end) if isinstance(end, str) else end for end in (least, most))
        if first > last:  # type: ignore[operator]  # two times or two numbers, checked above
            self.fail(
                f"min_value = {short(least)} is greater than max_value = {short(most)}", "nothing could pass: swap them"
            )

    def _severity(self, kind: str, value: object) -> str:
        if value not in SEVERITIES:
            self.fail(f"has the severity {short(value)}", f"allowed are {', '.join(reversed(SEVERITIES))} ({kind})")
        return str(value)

    def _text(self, raw: Mapping[str, Any], key: str) -> str:
        value = raw.get(key) or ""
        if not isinstance(value, str):
            self.fail(f"has a {key} that is {_kind(value)}", "write a text")
        return value

    def _check_meta(self, raw: Mapping[str, Any]) -> None:
        value = raw.get("meta") or {}
        if not isinstance(value, dict):
            self.fail(f"has a meta that is {_kind(value)}", "write an object")


def _suggest(name: str, allowed: Collection[str]) -> str:
    close = difflib.get_close_matches(str(name), list(allowed), n=3, cutoff=0.6)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"allowed are {', '.join(sorted(allowed))}"


def _kind(value: object) -> str:
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "a boolean", type(None): "null"}
    return kinds.get(type(value), "a number")


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."
