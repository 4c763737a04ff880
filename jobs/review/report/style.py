"""The style sheets of the report and of the review pages: one set of rules, with colours for light and dark."""

from functools import cache
from pathlib import Path

_TEMPLATES = Path(__file__).parent / "templates"


@cache
def report_style() -> str:
    """Return the style sheet of the report. Its colours follow the operating system."""
    light, dark = _read("light.css"), _read("dark.css")
    return (
        f":root {{\n  color-scheme: light dark;\n{light}}}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{\n{dark}}} }}\n{_read('report.css')}{_print_colours()}"
    )


@cache
def page_style() -> str:
    """Return the style sheet of the review pages. The attribute `data-theme` of the root selects the colours.

    Without the attribute, they follow the operating system.
    """
    light, dark = _read("light.css"), _read("dark.css")
    return (
        f":root {{\n  color-scheme: light dark;\n{light}}}\n"
        f"@media (prefers-color-scheme: dark) {{ :root:not([data-theme=light]) {{\n{dark}}} }}\n"
        f":root[data-theme=light] {{ color-scheme: light; }}\n"
        f":root[data-theme=dark] {{\n  color-scheme: dark;\n{dark}}}\n{_read('report.css')}{_print_colours()}"
    )


def _print_colours() -> str:
    """Return the colours on paper: the light ones on white, whatever theme the screen has."""
    paper = "  --bg: #fff; --panel: #fff; --ink: #000; --soft: #444; --line: #bbb; --hush: #f3f3f3;\n"
    # Three times :root, so that no rule of a theme is more specific.
    return f"@media print {{ :root:root:root {{\n  color-scheme: light;\n{_read('light.css')}{paper}}} }}\n"


def _read(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")
