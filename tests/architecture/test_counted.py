"""No message tells `1 slices`: a number with a noun comes from `counted`."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.places import ROOT

NOUNS = (
    "attempt|byte|change|check|comment|commit|day|file|flight|message|other|pane|part|publication|record|request|row|run|slice|"
    "window"
)
PLURAL = re.compile(rf" (?:(?:more|older|newer|open|held) )?(?:{NOUNS})s(?![\w/])")
TEMPLATE = re.compile(rf"\}}\}} (?:(?:more|older|newer|open|held) )?(?:{NOUNS})s\b")
PACKAGES = (
    "airflow_ui", "cli", "comparing", "dag_factory", "orchestration", "planning", "publishing", "reading", "review",
)  # fmt: skip
VERB = re.compile(r" (?:of (?:its|the) [\w ]+ )?(?:that )?(?:are|differ|do|have|stay|were)\b")
LIMITS = re.compile(r"\b(MAX\w*|_?MAX\w*|most)$")
"""The names of limits, which are never 1."""
PROPOSALS = ROOT / "jobs" / "review" / "suites" / "probes.py"
"""A suite is proposed from several runs."""


def counts_of(path: Path) -> Iterator[str]:
    """Yield the texts of a module in which a plural noun follows a number."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.JoinedStr):
            continue
        for value, text in zip(node.values, node.values[1:], strict=False):
            if (
                isinstance(value, ast.FormattedValue)
                and isinstance(text, ast.Constant)
                and PLURAL.match(str(text.value))
                and _is_number(value)
            ):
                yield f"{path.relative_to(ROOT)}:{value.lineno}: {ast.unparse(node)}"


def _is_number(value: ast.FormattedValue) -> bool:
    """Return whether a value is printed as a number: with a format for numbers, or because it is a length."""
    text = ast.unparse(value.value)
    has_format = value.format_spec is not None and "," in ast.unparse(value.format_spec)
    return (has_format or "len(" in text) and not LIMITS.search(text)


def test_no_module_writes_a_number_before_a_plural_noun() -> None:
    files = [file for name in PACKAGES for file in sorted((ROOT / "jobs" / name).rglob("*.py"))]
    assert len(files) > 100
    wrong = [one for file in files if file != PROPOSALS for one in counts_of(file)]
    assert wrong == [], "use jobs.plain_text.counted"


def test_no_verb_after_a_counted_noun_has_the_form_for_several() -> None:
    """`counted(1, "slice") have` is wrong: the verb comes from `counted` or `agreeing`."""
    wrong = [
        f"{file.relative_to(ROOT)}:{value.lineno}: {ast.unparse(node)}"
        for file in sorted((ROOT / "jobs").rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.JoinedStr)
        for value, text in zip(node.values, node.values[1:], strict=False)
        if isinstance(value, ast.FormattedValue)
        and "counted(" in ast.unparse(value)
        and isinstance(text, ast.Constant)
        and VERB.match(str(text.value))
    ]
    assert wrong == []


def test_no_template_writes_a_number_before_a_plural_noun() -> None:
    files = sorted((ROOT / "jobs").rglob("*.j2"))
    assert len(files) > 20
    wrong = [
        f"{file.relative_to(ROOT)}: {line.strip()[:160]}"
        for file in files
        for line in file.read_text(encoding="utf-8").splitlines()
        if TEMPLATE.search(line)
    ]
    assert wrong == [], 'use {{ counted(number, "slice") }}'
