"""The colours on paper."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.review.report import style


@pytest.mark.parametrize("sheet", [style.report_style, style.page_style])
def test_paper_is_white_and_has_no_colour_of_the_dark_theme(sheet: Callable[[], str]) -> None:
    """The rules for paper set every colour that the dark theme sets, and no selector of a theme is more specific."""
    templates = Path(style.__file__).parent / "templates"
    dark = set(re.findall(r"(--[\w-]+):", (templates / "dark.css").read_text(encoding="utf-8")))
    [rule] = re.findall(r"@media print \{ :root:root:root \{(.*?)\} \}", sheet(), re.DOTALL)
    assert dark <= set(re.findall(r"(--[\w-]+):", rule))
    paper = dict(re.findall(r"(--[\w-]+): ([^;]+);", rule))  # the last value counts
    assert (paper["--bg"], paper["--panel"], paper["--ink"]) == ("#fff", "#fff", "#000")
    assert "color-scheme: light" in rule
    for selector in re.findall(r"(:root\S*) \{", sheet()):
        assert selector.count(":") + selector.count("[") <= 3
