"""Imports have one direction, and DAG files import neither Spark nor Great Expectations."""

import ast
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.support.places import ROOT

HEAVY = ("pyspark", "delta", "great_expectations")


def test_the_contracts_of_import_linter_hold() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def loaded_by(statement: str) -> set[str]:
    """Return the modules that a fresh interpreter has loaded after a statement."""
    code = f"{statement}\nimport sys\nsys.stdout.write('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    return set(done.stdout.splitlines())


def test_the_core_needs_the_standard_library_only() -> None:
    """Spark's workers, notebooks and users' tests import the core without installing anything."""
    modules = [
        ".".join(file.relative_to(ROOT).with_suffix("").parts)
        for file in (ROOT / "windowlib").rglob("*.py")
        if not {"columnar", "execution", "kernels"} & {*file.parts} and file.stem != "__init__"
    ]
    assert len(modules) > 50
    code = f"import sys\nbefore = set(sys.modules)\nimport {', '.join(modules)}\nprint(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split() if not name.startswith("_sysconfigdata")}
    assert loaded - sys.stdlib_module_names == {"windowlib"}


def test_a_library_is_imported_when_one_of_its_names_is_first_used() -> None:
    """Also where Spark's workers get a function that names it."""
    names = "from windowlib.libraries import duckdb, np, pa, pads, pafs, pc, pd, pq"
    assert not {"duckdb", "numpy", "pandas", "pyarrow"} & loaded_by(names)
    sent = "from pyspark import cloudpickle; run = cloudpickle.loads(cloudpickle.dumps(lambda: pa.array([1])))"
    assert "pyarrow" in loaded_by(
        f"{names}; {sent}; import pyarrow; assert run() == pyarrow.array([1]) == pa.array([1])"
    )
    assert "pyarrow.dataset" in loaded_by(
        "from windowlib.libraries import pa; pa.lib; import pyarrow.dataset; pa.dataset"
    )


def test_dag_files_import_neither_spark_nor_great_expectations() -> None:
    files = sorted((ROOT / "dags").rglob("*.py"))
    assert files
    for file in files:
        for name in imported(file):
            assert not name.startswith(HEAVY), f"{file.name} imports {name}: a DAG file is parsed every few seconds"


def imported(file: Path) -> set[str]:
    return modules_of(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))


def top_level(file: Path) -> set[str]:
    return modules_of(ast.parse(file.read_text(encoding="utf-8")).body)


def modules_of(nodes: Iterable[ast.AST]) -> set[str]:
    names: set[str] = set()
    for node in nodes:
        match node:
            case ast.Import(names=aliases):
                names |= {alias.name for alias in aliases}
            case ast.ImportFrom(module=str(module)):
                names.add(module)
            case _:
                pass
    return names


def test_what_dag_files_import_loads_neither_spark_nor_great_expectations() -> None:
    """Imports inside functions are allowed: parsing a DAG file does not run them."""
    ours = {
        name
        for file in (ROOT / "dags").rglob("*.py")
        for name in top_level(file)
        if name.startswith(("jobs", "windowlib"))
    }
    assert ours
    loaded = loaded_by("; ".join(f"import {name}" for name in sorted(ours)))
    assert not {"pyspark", "delta", "great_expectations", "pandas", "pyarrow"} & {name.split(".")[0] for name in loaded}
