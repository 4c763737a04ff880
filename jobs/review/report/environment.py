"""The template environment of the report and of the review pages.

Every value is escaped, and characters that could hide or turn text are shown as codes.
"""

from jinja2 import BaseLoader, Environment, StrictUndefined
from markupsafe import Markup, escape

from jobs.plain_text import escaped, escaped_lines, with_capital

MAX_TEXT = 2_000


def template_environment(loader: BaseLoader) -> Environment:
    """Return an environment. Autoescape is always on, because Jinja's choice by suffix misses `.j2`."""
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, finalize=_shown)
    made.filters["lines"] = _lines
    made.filters["sentence"] = with_capital
    return made


def _shown(value: object) -> object:
    """Return a printed value: texts with control and direction characters escaped, and cut if they are very long."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return escaped(value if len(value) <= MAX_TEXT else f"{value[:MAX_TEXT]}… ({len(value):,} characters)")
    return value


def _lines(value: str) -> Markup:
    """Return a text of several lines, such as an error, with its line breaks."""
    return Markup("<br>").join(escape(line) for line in escaped_lines(value[: 10 * MAX_TEXT]).split("\n"))
