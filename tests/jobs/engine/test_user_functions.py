"""Users' functions: where modules are searched, error messages, the fingerprint, and shipping to workers."""

import ast
import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from jobs.engine import fingerprints
from jobs.engine.fingerprints import spec_fingerprint
from jobs.engine.user_functions import Functions
from jobs.engine.window_spec import engine, pipeline_functions
from jobs.pipeline.files import load_all, load_file
from jobs.pipeline.models.grammar import FunctionGrammar
from tests.support.grammar import COLUMNS, document
from tests.support.places import ROOT
from windowlib.errors import SpecError
from windowlib.windows.spec import WindowSpec

GAP = """
from my_helpers import factor

def gap(columns):
    return 1000 * factor()
"""
HELPERS = "def factor():\n    return 60\n"


@pytest.fixture(autouse=True)
def _leave_no_modules() -> Iterator[None]:
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def write(directory: Path, *, gap: str = GAP, helpers: str = HELPERS, function: str = "my_gaps:gap") -> Path:
    """A pipeline file with two modules beside it; the first imports the second."""
    (directory / "my_gaps.py").write_text(gap)
    (directory / "my_helpers.py").write_text(helpers)
    path = directory / "sample.yaml"
    path.write_text(yaml.safe_dump(document(windows={"session": {"gap": {"function": function}}})))
    return path


def gap_ms(path: Path) -> int:
    spec = engine(load_file(path), COLUMNS).operator
    assert isinstance(spec, WindowSpec)
    gap: Any = spec.assigner
    found: int = gap.gap.function({})
    return found


def test_a_module_beside_the_pipeline_file_is_found(tmp_path: Path) -> None:
    assert gap_ms(write(tmp_path)) == 60_000


def test_two_directories_may_have_modules_of_the_same_name(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, second = write(tmp_path / "a"), write(tmp_path / "b", gap="def gap(columns):\n    return 7\n")
    assert [gap_ms(first), gap_ms(second), gap_ms(first)] == [60_000, 7, 60_000]


@pytest.mark.parametrize("has_init", [True, False])
def test_two_directories_may_have_packages_of_the_same_name(tmp_path: Path, *, has_init: bool) -> None:
    for name in ("x", "y"):
        package = tmp_path / name / "parts"
        package.mkdir(parents=True)
        (package / f"{name}.py").write_text("def gap(columns):\n    return 1\n")
        if has_init:
            (package / "__init__.py").touch()
    for name in ("x", "y", "x"):
        function: Any = Functions(source="s", directory=tmp_path / name).load(
            FunctionGrammar(name=f"parts.{name}:gap"), "gap"
        )
        assert Path(function.__code__.co_filename).parent == tmp_path / name / "parts"


def test_a_changed_module_is_imported_again(tmp_path: Path) -> None:
    path = write(tmp_path)
    assert gap_ms(path) == 60_000
    write(tmp_path, gap="def gap(columns):\n    return 8\n")
    assert gap_ms(path) == 8


@pytest.mark.parametrize("form", ["from my_helpers import factor", "from parts import numbers", "import parts.numbers"])
@pytest.mark.parametrize("is_package", [True, False])
def test_after_any_edit_the_function_is_that_of_its_fingerprint(tmp_path: Path, form: str, *, is_package: bool) -> None:
    """Whichever of the modules beside the file changed, also in the directory of another pipeline."""
    for directory in ("a", "b"):
        (tmp_path / directory / "parts").mkdir(parents=True)
    random, clock, seen = Random(5), count(1_700_000_000), dict[str, int]()
    call = {"from my_helpers import factor": "factor()", "from parts import numbers": "numbers.factor()"}
    for _ in range(12):
        place, own, helper = tmp_path / random.choice("ab"), random.randrange(1, 4), random.randrange(1, 4)
        gap = f"{form}\n\ndef gap(columns):\n    return {own} * {call.get(form, 'parts.numbers.factor()')}\n"
        path = write(place, gap=gap, helpers="from parts.numbers import factor\n")
        scale = random.randrange(1, 4) if is_package else 1
        if is_package:
            (place / "parts" / "__init__.py").write_text(f"SCALE = {scale}\n")
        scaled = f"{helper} * getattr(sys.modules['parts'], 'SCALE', 1)"
        (place / "parts" / "numbers.py").write_text(f"import sys\n\ndef factor():\n    return {scaled}\n")
        for file in place.rglob("*.py"):
            os.utime(file, (clock_s := next(clock), clock_s))  # Python compares whole seconds with its cache
        wanted = own * helper * scale
        assert gap_ms(path) == wanted
        assert seen.setdefault(spec_fingerprint(load_file(path)), wanted) == wanted


def test_modules_beside_a_changed_one_are_still_shipped(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    for name in ("x", "y"):
        (tmp_path / "parts" / f"{name}.py").write_text("def gap(columns):\n    return 1\n")
    grammars = [FunctionGrammar(name=f"parts.{name}:gap") for name in ("x", "y")]
    for text in ("1", "20"):
        (tmp_path / "parts" / "y.py").write_text(f"def gap(columns):\n    return {text}\n")
        functions = Functions(source="s", directory=tmp_path)
        loaded: list[Any] = [functions.load(grammar, "gap") for grammar in grammars]
        assert [gap({}) for gap in loaded] == [1, int(text)]
        assert [module.__name__ for module in functions.own_modules()] == ["parts.x", "parts.y"]


def test_an_edit_of_one_module_leaves_the_others_of_its_package(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "x.py").write_text("NUMBER = 3\n")
    (tmp_path / "my_gaps.py").write_text("import parts.x\n\ndef gap(columns):\n    return parts.x.NUMBER\n")
    first: Any = Functions(source="s", directory=tmp_path).load(FunctionGrammar(name="my_gaps:gap"), "gap")
    for text in ("1", "1 / 0", "20"):
        (tmp_path / "parts" / "y.py").write_text(f"NUMBER = {text}\n\ndef gap(columns):\n    return NUMBER\n")
        functions = Functions(source="s", directory=tmp_path)
        if text == "1 / 0":
            with pytest.raises(SpecError, match="division by zero"):
                functions.load(FunctionGrammar(name="parts.y:gap"), "gap")
            assert sys.modules["parts.y"].gap({}) == 1, "the module before the edit that failed"
        else:
            second: Any = functions.load(FunctionGrammar(name="parts.y:gap"), "gap")
            assert second({}) == int(text)
        assert importlib.import_module("parts").x is sys.modules["parts.x"]
        assert first({}) == 3


def test_a_helper_of_a_module_that_failed_is_imported_again_after_an_edit(tmp_path: Path) -> None:
    path = write(tmp_path, gap=GAP + "1 / 0\n")
    with pytest.raises(SpecError, match="division by zero"):
        gap_ms(path)
    assert gap_ms(write(tmp_path, helpers="def factor():\n    return 617\n")) == 617_000


def test_each_helper_is_parsed_once_for_an_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    helpers = 12
    for place in range(helpers):
        further = f"import my_helper_{place + 1}\n" if place + 1 < helpers else ""
        (tmp_path / f"my_helper_{place}.py").write_text(f"{further}def gap(columns):\n    return 1\n")
    parsed, parse = list[str](), ast.parse

    def noted(text: str) -> ast.Module:
        parsed.append(text)
        return parse(text)

    with monkeypatch.context() as patched:
        patched.setattr(ast, "parse", noted)
        Functions(source="s", directory=tmp_path).load(FunctionGrammar(name="my_helper_0:gap"), "gap")
    assert len(parsed) == 2 * helpers, "once for the import, once for the list of what is shipped"


def test_a_module_in_a_package_beside_the_file_is_found(tmp_path: Path) -> None:
    (tmp_path / "functions").mkdir()
    (tmp_path / "functions" / "gaps.py").write_text("def gap(columns):\n    return 5\n")
    assert gap_ms(write(tmp_path, function="functions.gaps:gap")) == 5


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("my_gabs:gap", "there is no module 'my_gabs'; looked in "),
        ("my_gaps:gapp", "has no 'gapp'; it has factor, gap, NUMBER, Thing; did you mean 'gap'?"),
        ("my_gaps:NUMBER", "my_gaps:NUMBER is of type int; allowed: a function"),
        ("my_gaps:Thing", "my_gaps:Thing is the class Thing; allowed: a function"),
        ("my_gaps:factor", "my_gaps:factor() is called with (columns): too many positional arguments"),
        ("my_broken:gap", "my_broken.py failed: ZeroDivisionError: division by zero"),
        ("my_syntax:gap", "my_syntax.py cannot be read as Python: invalid syntax"),
        ("json:gap", "json.py has the same name as the module 'json' of Python or of an installed package; rename it"),
        ("yaml:gap", "yaml.py has the same name as the module 'yaml' of Python or of an installed package; rename it"),
        ("windowlib.triggers.flink:Never", "'windowlib.triggers.flink' is a module of Hindcast"),
    ],
)
def test_an_error_names_the_file_the_key_and_the_problem(tmp_path: Path, function: str, message: str) -> None:
    path = write(tmp_path, gap=GAP + "NUMBER = 5\nclass Thing:\n    pass\n", function=function)
    (tmp_path / "my_broken.py").write_text("1 / 0\n")
    (tmp_path / "my_syntax.py").write_text("def gap(:\n")
    for name in ("json", "yaml"):
        (tmp_path / f"{name}.py").write_text("def gap(columns):\n    return 5\n")
    with pytest.raises(SpecError) as caught:
        gap_ms(path)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{path}: windows.session.gap.function: ")


ADAPTED = """
from functools import cache, wraps

def on(*names):
    def decorate(function):
        @wraps(function)
        def wrapper(columns):
            return function(*names)
        return wrapper
    return decorate

@on("a", "b")
@cache
def gap(first, second):
    return 5

@cache
def cached(columns):
    return 6

@cache
def no_columns():
    return 7
"""


def test_a_decorated_function_is_judged_by_the_arguments_of_its_wrapper(tmp_path: Path) -> None:
    assert gap_ms(write(tmp_path, gap=ADAPTED)) == 5
    cached = engine(load_file(write(tmp_path, gap=ADAPTED, function="my_gaps:cached")), COLUMNS)
    assert isinstance(cached.operator, WindowSpec)
    with pytest.raises(SpecError, match=r"no_columns\(\) is called with \(columns\): too many"):
        gap_ms(write(tmp_path, gap=ADAPTED, function="my_gaps:no_columns"))


@pytest.mark.parametrize("module", ["colorsys", "yaml"])
def test_a_helper_does_not_replace_a_module_of_python_or_of_a_package(tmp_path: Path, module: str) -> None:
    """The other functions of the process, and Hindcast itself, would get the helper."""
    path = write(tmp_path, helpers=f"import {module}\n\ndef factor():\n    return {module}.FACTOR\n")
    (tmp_path / f"{module}.py").write_text("FACTOR = 5\n")
    before = importlib.import_module(module)
    for reads in (gap_ms, lambda file: spec_fingerprint(load_file(file))):
        with pytest.raises(SpecError, match=rf"{module}\.py has the same name as the module '{module}' of Python"):
            reads(path)
    assert sys.modules[module] is before


def test_the_fingerprint_covers_the_module_and_the_modules_it_imports(tmp_path: Path) -> None:
    path = write(tmp_path)
    first = spec_fingerprint(load_file(path))
    assert spec_fingerprint(load_file(write(tmp_path))) == first
    changed = spec_fingerprint(load_file(write(tmp_path, gap=GAP + "# a comment is a change, too\n")))
    helper = spec_fingerprint(load_file(write(tmp_path, helpers="def factor():\n    return 61\n")))
    assert len({first, changed, helper}) == 3
    (tmp_path / "elsewhere").mkdir()
    assert spec_fingerprint(load_file(write(tmp_path / "elsewhere"))) == first, "the place does not count"


def test_a_version_replaces_the_source_in_the_fingerprint(tmp_path: Path) -> None:
    def hashed(version: str, **parts: str) -> str:
        path = write(tmp_path, **parts)
        function = {"name": "my_gaps:gap", "version": version}
        path.write_text(yaml.safe_dump(document(windows={"session": {"gap": {"function": function}}})))
        return spec_fingerprint(load_file(path))

    assert hashed("1") == hashed("1", gap="def gap(columns):\n    return 5\n")
    assert hashed("1") != hashed("2")


@pytest.mark.parametrize("version", ["", "1"])
def test_the_rules_for_functions_count_for_pipelines_with_functions_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    path, plain = write(tmp_path), tmp_path / "plain.yaml"
    plain.write_text(yaml.safe_dump(document()))
    if version:
        function = {"name": "my_gaps:gap", "version": version}
        path.write_text(yaml.safe_dump(document(windows={"session": {"gap": {"function": function}}})))
    before = [spec_fingerprint(load_file(file)) for file in (path, plain)]
    monkeypatch.setattr(fingerprints, "FUNCTIONS_VERSION", fingerprints.FUNCTIONS_VERSION + 1)
    after = [spec_fingerprint(load_file(file)) for file in (path, plain)]
    assert before[0] != after[0]
    assert before[1] == after[1]


@pytest.mark.parametrize(
    ("accumulation", "kind", "is_new"),
    [("retracting", "struct<a:int>", True), ("retracting", "int", False), ("accumulating", "struct<a:int>", False)],
)
def test_the_rules_for_retractions_count_for_structs_of_functions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accumulation: str, kind: str, *, is_new: bool
) -> None:
    path = write(tmp_path)
    windows = {"tumbling": {"size": "1h"}, "accumulation": accumulation}
    process = {"function": {"name": "my_gaps:gap", "version": "1"}, "output": {"r": kind}}
    path.write_text(yaml.safe_dump(document(windows=windows, process=process, aggregates={})))
    before = spec_fingerprint(load_file(path))
    monkeypatch.setitem(fingerprints.VERSIONS, "retractions_version", 3)
    assert (spec_fingerprint(load_file(path)) != before) == is_new


def test_a_broken_module_breaks_no_other_pipeline_and_reading_imports_nothing(tmp_path: Path) -> None:
    write(tmp_path, gap="raise SystemExit('imported')\n")
    (tmp_path / "other.yaml").write_text(yaml.safe_dump(document(pipeline="other")))
    files = load_all(tmp_path)
    assert [one.name for one in files.good] == ["other", "sample"]
    assert "my_gaps" not in sys.modules
    spec_fingerprint(files.good[1])
    assert "my_gaps" not in sys.modules


def test_a_removed_module_is_reported_when_a_run_is_planned(tmp_path: Path) -> None:
    path = write(tmp_path)
    (tmp_path / "my_gaps.py").unlink()
    with pytest.raises(SpecError, match="there is no module 'my_gaps'"):
        spec_fingerprint(load_file(path))


def test_a_directory_that_this_user_may_not_enter_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Defect: it ended every command on the pipeline as a bug in Hindcast."""
    path, is_file = write(tmp_path, function="parts.my_gaps:gap"), Path.is_file

    def refused(file: Path) -> bool:
        if "parts" in file.parts:
            raise PermissionError(13, "Permission denied", str(file))
        return is_file(file)

    monkeypatch.setattr(Path, "is_file", refused)
    with pytest.raises(SpecError, match=r"parts/my_gaps\.py cannot be read: Permission denied"):
        spec_fingerprint(load_file(path))


def test_loaded_modules_are_shipped_and_installed_packages_are_not(tmp_path: Path) -> None:
    one = load_file(write(tmp_path))
    functions = pipeline_functions(one)
    assert functions.own_modules() == []
    engine(one, COLUMNS, functions)
    assert [module.__name__ for module in functions.own_modules()] == ["my_gaps", "my_helpers"]
    installed = Functions(source="p.yaml")
    installed.load(FunctionGrammar.model_validate("yaml:safe_load"), "process.function")
    assert installed.own_modules() == [], "the workers must have packages"


CACHED = """
from functools import cache
from my_helpers import factor

@cache
def times(count):
    return 0 if count == 0 else factor() + times(count - 1)

def gap(columns):
    return times(100) * 10
"""


@pytest.mark.slow
@pytest.mark.parametrize("gap", [GAP, CACHED], ids=["plain", "cached"])
def test_a_shipped_function_needs_no_module_on_the_worker(tmp_path: Path, gap: str) -> None:
    """As Spark does: pickle in one process, run in another process that cannot see the directory."""
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from pyspark import cloudpickle\n"
        "from jobs.pipeline.files import load_file\n"
        "from jobs.engine.window_spec import engine, pipeline_functions\n"
        "from tests.support.grammar import COLUMNS\n"
        "one = load_file(Path(sys.argv[1]))\n"
        "functions = pipeline_functions(one)\n"
        "built = engine(one, COLUMNS, functions)\n"
        "functions.ship()\n"
        "sys.stdout.buffer.write(cloudpickle.dumps(built.operator))\n"
    )
    path = write(tmp_path, gap=gap)
    packed = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, check=True, cwd=ROOT).stdout
    for module in ("my_gaps.py", "my_helpers.py"):
        (tmp_path / module).unlink()
    unpack = (
        "import sys\n"
        "from pyspark import cloudpickle\n"
        "spec = cloudpickle.loads(sys.stdin.buffer.read())\n"
        "print(spec.assigner.gap.function({}))\n"
    )
    done = subprocess.run([sys.executable, "-c", unpack], input=packed, capture_output=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == b"60000"
