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
        f"@media (prefers-color-scheme: dark) {{ :root {{\n{dark}}} }}\n{_read('report.css')}"
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
        f":root[data-theme=dark] {{\n  color-scheme: dark;\n{dark}}}\n{_read('report.css')}"
    )


def _read(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")
