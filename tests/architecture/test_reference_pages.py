"""The reference names what the code has, and nothing else: environment variables, gauges, columns and reasons."""

import re

from jobs.review.metrics import HELP
from tests.support.places import ROOT
from windowlib.atlas.dead_letters import LATE_REASON
from windowlib.columnar.instants import PROBLEMS
from windowlib.records import tables
from windowlib.records.records import LATE_IN_GAP, PAST_CLEANUP, WRAPPED_WINDOW
from windowlib.storm.reasons import BEFORE_START, LATE_LOGGED, LATE_STREAM

VARIABLE = re.compile(r"\bHINDCAST_[A-Z0-9_]+\b")


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
