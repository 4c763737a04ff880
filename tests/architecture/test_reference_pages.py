"""The reference names what the code has, and nothing else: variables, gauges, columns, reasons and fields of JSON."""

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Final

import click
import pytest

from jobs.cli.accept_rewrite import _json
from jobs.cli.adopt import adopt_command
from jobs.cli.changes import changes_command
from jobs.cli.comment import comment_command
from jobs.cli.decide import cancel_command, resume_command, waive_command
from jobs.cli.doctor import examination_json
from jobs.cli.export import export_command
from jobs.cli.follow import _print_plans
from jobs.cli.main import COMMANDS
from jobs.cli.plan import NoPlanYet, plan_command
from jobs.cli.repair import _propose, repair_command
from jobs.cli.status import _newest_publication, _request, _state, _tell, status_command
from jobs.cli.verify import verify_command
from jobs.comparing.changes import WindowChanges
from jobs.comparing.differences import ColumnDifference, Differences, Sample, TableDifference
from jobs.doctor import finding
from jobs.lake.rewrites import Rewrite, RewrittenSlice
from jobs.orchestration.mending import Mended
from jobs.orchestration.outcomes import RequestOutcome, run_to_json
from jobs.orchestration.repair_range import LateRepair
from jobs.orchestration.requests import Progress
from jobs.planning.change_sentences import ToldChanges
from jobs.planning.event_time_progress import EventTimeProgress
from jobs.planning.plan import Plan
from jobs.publishing.cleaning import Leftovers, RemovedRows
from jobs.publishing.current_tables import Current
from jobs.publishing.rules import PublicationAttempt
from jobs.reading import stored_rows, verify
from jobs.reading.export import Exported
from jobs.review import verify_input
from jobs.review.execution import Execution
from jobs.review.explain import Explanation
from jobs.review.metrics import HELP
from jobs.review.suites.trying import Trial, TriedCheck, TriedSlice
from jobs.review.window.told_window import WindowExplanation, _record_json
from jobs.runs import Counts
from tests.support.places import ROOT
from windowlib.atlas.dead_letters import LATE_REASON
from windowlib.columnar.instants import PROBLEMS
from windowlib.records import tables
from windowlib.records.records import LATE_IN_GAP, PAST_CLEANUP, WRAPPED_WINDOW
from windowlib.storm.reasons import BEFORE_START, LATE_LOGGED, LATE_STREAM

VARIABLE = re.compile(r"\bHINDCAST_[A-Z0-9_]+\b")
Source = Callable[..., Any] | click.Command
"""A command, a function that makes objects with fixed names, or a dataclass all of whose fields are printed."""
JSON: Final[dict[str, tuple[Source, ...]]] = {
    "plan": (plan_command, Plan.to_json, verify_input.Verification, Execution, NoPlanYet.to_json, _print_plans),
    "run": (RequestOutcome.to_json, run_to_json, adopt_command),
    "Progress": (Progress.to_json, EventTimeProgress.to_json, _tell),
    "status": (status_command, _state, _newest_publication, _request, Current.to_json, ToldChanges.to_json),
    "show": (),
    "diff": (Differences.to_json, TableDifference, ColumnDifference, Sample),
    "changes": (changes_command, WindowChanges.to_json, Exported),
    "export": (export_command, Exported),
    "explain": (Explanation.to_json,),
    "explain --window": (WindowExplanation.to_json, _record_json),
    "publish": (PublicationAttempt.to_json,),
    "waive": (waive_command,),
    "cancel": (cancel_command,),
    "comment": (comment_command,),
    "resume": (resume_command,),
    "repair": (repair_command, LateRepair.to_json, _propose),
    "accept-rewrite": (_json, Rewrite, RewrittenSlice),
    "verify": (verify_command, verify.Verification.to_json, stored_rows.Finding),
    "mend": (Mended.to_json,),
    "clean": (Leftovers.to_json, RemovedRows.to_json),
    "doctor": (examination_json, finding.Finding),
    "suite try": (Trial.to_json, TriedSlice, TriedCheck),
}
"""Section of the page of the JSON of commands -> what makes its objects."""
ELSEWHERE: Final = {"adopt", "follow", "rollback", "metrics"}
"""Commands with --json whose values are those of other sections, or on another page."""


def page(path: str) -> str:
    return (ROOT / "docs" / path).read_text(encoding="utf-8")


def test_the_page_of_the_environment_has_every_variable_that_the_code_reads() -> None:
    sources = [ROOT / "docker-compose.yml"]
    for package in ("jobs", "dags", "expectations", "windowlib", "deploy"):
        sources += (ROOT / package).rglob("*.py")
    read = {name for source in sources for name in VARIABLE.findall(source.read_text(encoding="utf-8"))}
    assert len(read) > 15
    read -= {"HINDCAST_VERSION", "HINDCAST_REVISION"}  # labels of the image
    assert {*VARIABLE.findall(page("reference/environment.md"))} == read


def test_the_page_of_deployment_has_every_gauge() -> None:
    text = page("how-to/deployment.md").partition("## Metrics")[2].partition("\n## ")[0]
    assert {*re.findall(r"`hindcast_(\w+)`", text)} == {"readable", *HELP}


def test_the_page_of_tables_has_every_column_that_readers_see() -> None:
    text = page("reference/tables.md")
    seen = (
        tables.window_outputs({}, {}),
        tables.late_records("string"),
        tables.unassigned_records("string"),
        tables.invalid_records("string"),
        tables.duplicate_records("string"),
        tables.side_outputs("tag", {}, {}),
    )
    for table in seen:
        row = next(line for line in text.splitlines() if line.startswith(f"| `{table.name.replace('tag', '<tag>')}` |"))
        assert [name for name in table.columns() if f"`{name}`" not in row] == [], table.name


def test_the_page_of_tables_has_every_reason() -> None:
    text = page("reference/tables.md").partition("## Reasons")[2].partition("\n## ")[0]
    reasons = {*filter(None, PROBLEMS), PAST_CLEANUP, LATE_IN_GAP, WRAPPED_WINDOW, LATE_STREAM, LATE_LOGGED}
    reasons |= {BEFORE_START, LATE_REASON}
    named = {*re.findall(r"`([^`]+)`", re.sub(r"^\| [^|]*\|([^|]*)\|.*$", r"\1", text, flags=re.MULTILINE))}
    assert named >= reasons
    assert named - reasons <= {"reason"}


def test_the_page_of_json_has_every_command_that_prints_some() -> None:
    named = {name for name, _ in json_commands()}
    assert len(named) > 15
    assert named - ELSEWHERE <= JSON.keys()
    assert [*json_sections()] == [*JSON]


def json_commands() -> Iterator[tuple[str, click.Command]]:
    """Yield the commands with --json, by name; those of a group by both names."""
    for name, place in COMMANDS.items():
        module, _, attribute = place.partition(":")
        command = getattr(import_module(module), attribute)
        inner = command.commands if isinstance(command, click.Group) else {}
        every = {name: command} | {f"{name} {own}": each for own, each in inner.items()}
        yield from ((own, each) for own, each in every.items() if any(one.name == "as_json" for one in each.params))


def json_sections() -> dict[str, set[str]]:
    """Return section -> the names of its fields, and of those on the path to them."""
    sections = {}
    for part in page("reference/json.md").split("\n## ")[1:]:
        title, _, text = part.partition("\n")
        cells = "".join(line.split("|")[1] for line in text.splitlines() if line.startswith("| `"))
        names = re.findall("`([^`]+)`", cells)
        sections[title.strip("`")] = {part for name in names for part in re.sub(r"\[\]|\{\}", "", name).split(".")}
    return sections


@pytest.mark.parametrize("section", JSON)
def test_the_page_of_json_has_every_field(section: str) -> None:
    in_code = {SPELLED.get(name, name) for source in JSON[section] for name in fields_of(source)}
    assert json_sections()[section] == in_code


SPELLED: Final = {"is_value": "value"}


def fields_of(source: Source) -> set[str]:
    """Return the names of the objects that a source makes. Names with a dot are notes in a file."""
    if isinstance(source, type) and dataclasses.is_dataclass(source):
        return {field.name for field in dataclasses.fields(source)}
    function = source.callback if isinstance(source, click.Command) else source
    assert function is not None
    function = inspect.unwrap(function)
    names = getattr(function, "__globals__", {})
    fields = set()
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))):
        if isinstance(node, ast.Dict):
            fields |= {names[key.id] for key in node.keys if isinstance(key, ast.Name)}
            fields |= {str(key.value) for key in node.keys if isinstance(key, ast.Constant)}
        elif (
            isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and isinstance(node.slice, ast.Constant)
        ):
            fields.add(str(node.slice.value))
    return {field for field in fields if "." not in field}


def test_the_page_of_json_has_every_count() -> None:
    text = page("reference/json.md").partition("## `run`")[2].partition("\n## ")[0]
    assert [field.name for field in dataclasses.fields(Counts) if f"`{field.name}`" not in text] == []
