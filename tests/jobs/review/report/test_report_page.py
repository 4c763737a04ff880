"""The page is self-contained, escaped, small, fast, and readable without colours."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from typing_extensions import override

from jobs.review.report.model import Status, build_model
from jobs.review.report.page import render
from tests.support.report_rows import blizzard, hostile, many_days, with_result
from tests.support.timing import growth

MARKER = "pwned"
HOSTILE = [
    "<script>document.title='pwned'</script>",
    "</title><script>pwned()</script>",
    "</style><script>pwned()</script>",
    '"><script>pwned()</script>',
    "'><img src=x onerror=pwned()>",
    '<img src=x onerror="pwned()">',
    "<svg onload=pwned()>",
    "<svg><script>pwned()</script></svg>",
    "</svg><img src=x onerror=pwned()>",
    "<iframe src=javascript:pwned()>",
    "<a href=javascript:pwned()>x</a>",
    "javascript:pwned()",
    "data:text/html,<script>pwned()</script>",
    '" onmouseover="pwned()',
    "' onfocus='pwned()' autofocus='",
    "<body onload=pwned()>",
    "<details open ontoggle=pwned()>",
    "<video><source onerror=pwned()></video>",
    "<math><mtext></p><script>pwned()</script>",
    "<object data=//pwned>",
    "<embed src=//pwned>",
    "<link rel=stylesheet href=//pwned>",
    "<meta http-equiv=refresh content='0;url=//pwned'>",
    "<base href=//pwned/>",
    "<form action=//pwned><input type=submit>",
    "<style>@import '//pwned';</style>",
    "<!--><script>pwned()</script>-->",
    "--><script>pwned()</script>",
    "]]><script>pwned()</script>",
    "<![CDATA[<script>pwned()]]>",
    "{{7*7}}{% raw %}pwned",
    "{{ ''.__class__.__mro__ }}pwned",
    "${7*7}pwned",
    "<%= 7*7 %>pwned",
    "&lt;script&gt;pwned()",
    "&#60;script&#62;pwned()",
    "%3Cscript%3Epwned()%3C/script%3E",
    "\u003cscript\u003epwned()\u003c/script\u003e",
    "\uff1cscript\uff1epwned()",
    "<scr\0ipt>pwned()</scr\0ipt>",
    "<scr<script>ipt>pwned()</script>",
    "<SCRIPT/SRC=//pwned>",
    "<script\n>pwned()</script\n>",
    "\u202e<script>pwned()</script>",
    "\ud800<script>pwned()</script>",
    "\ufeff<script>pwned()</script>",
    "`;pwned();`",
    '\\"><script>pwned()</script>',
    "<x" * 100 + " onclick=pwned()>",
    '<noscript><p title="</noscript><img src=x onerror=pwned()>">',
    "<template><script>pwned()</script>",
]


class Page(HTMLParser):
    """Collects the tags, attributes and links on which a browser acts."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: set[str] = set()
        self.attributes: set[tuple[str, str]] = set()
        self.links: list[str] = []
        self.ids: list[str] = []
        self.images: list[dict[str, str | None]] = []
        self.comments: list[str] = []
        self.policy = ""

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.add(tag)
        self.attributes |= {(tag, name) for name in found}
        self.links += [value or "" for name, value in attrs if name in {"href", "src", "action", "data", "xlink:href"}]
        self.ids += [found["id"] or ""] if "id" in found else []
        self.images += [found] if tag == "svg" else []
        if found.get("http-equiv") == "Content-Security-Policy":
            self.policy = found["content"] or ""

    @override
    def handle_comment(self, data: str) -> None:
        self.comments.append(data)


def parsed(text: str) -> Page:
    page = Page()
    page.feed(text)
    page.close()
    return page


def test_there_are_fifty_hostile_values() -> None:
    assert len(set(HOSTILE)) >= 50


@pytest.mark.parametrize("start", range(0, len(HOSTILE), 5))
def test_hostile_values_add_no_element_no_attribute_and_no_link(start: int) -> None:
    harmless = parsed(render(build_model(hostile(["harmless", "values"]))))
    text = render(build_model(hostile(HOSTILE[start:] + HOSTILE[:start])))
    page = parsed(text)
    assert MARKER in text
    assert page.tags == harmless.tags
    assert page.attributes == harmless.attributes
    assert page.comments == []
    assert all(link.startswith("#s") or link in {"data:,", "#content"} for link in page.links)
    assert "<script" not in text.lower()


@pytest.mark.parametrize("value", HOSTILE)
def test_each_hostile_value_is_written_escaped(value: str) -> None:
    text = render(build_model(hostile([value, value])))
    if "<" in value:
        assert value not in text
    assert "49" not in text or "{{7*7}}" not in value or "{{7*7}}" in text


@pytest.mark.parametrize("rows", [blizzard(), blizzard(waived=True), many_days(400)], ids=["held", "waived", "year"])
def test_the_page_loads_nothing(rows: object) -> None:
    text = render(build_model(rows))  # type: ignore[arg-type]
    page = parsed(text)
    assert page.policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in page.policy
    assert page.tags.isdisjoint({"script", "img", "iframe", "object", "embed", "form", "base", "video", "audio"})
    assert "style" not in {name for _, name in page.attributes}
    assert "url(" not in text
    assert "@import" not in text
    assert "http://" not in text
    assert "https://" not in text


def test_every_link_has_a_target_on_the_page_and_ids_are_unique() -> None:
    page = parsed(render(build_model(many_days(366))))
    assert len(set(page.ids)) == len(page.ids)
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)


def test_every_link_has_a_target_if_older_slices_are_summed_up() -> None:
    page = parsed(render(build_model(many_days(1_000))))
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)


def test_drawings_have_labels_and_statuses_have_symbols() -> None:
    text = render(build_model(blizzard()))
    page = parsed(text)
    assert page.images
    assert all(image.get("role") == "img" and image.get("aria-label") for image in page.images)
    assert '<html lang="en">' in text
    assert text.count("✕") >= 4  # calendar, cards, table, legend


def test_a_bar_for_several_slices_is_the_worst_of_them() -> None:
    """500 slices in 240 bars: each failed slice has a bar with its own records, and no bar is a sum."""
    model = build_model(many_days(500))
    page = render(model)
    assert "A bar stands for up to 3 slices" in page
    drawing = page.partition('class="overview"')[2].partition("</svg>")[0]
    tips = re.findall(r"<title>(.*?)</title>", drawing)
    assert len(tips) == 240
    bad = [line.tip for line in model.lines if line.status in {Status.FAIL, Status.ERROR, Status.WAIVED}]
    assert len(bad) > 5
    assert [tip for tip in bad if not any(text.startswith(f"{tip}; stands for ") for text in tips)] == []


def test_the_table_of_slices_has_a_column_for_each_fate_so_that_rows_add_up() -> None:
    rows = many_days(500)
    run = rows.runs[rows.slices[-1].slice_id]
    counts = replace(run.result.counts, read=run.result.counts.read + 7_654_321, duplicate=7_654_321)
    some = replace(rows, runs={**rows.runs, rows.slices[-1].slice_id: with_result(run, counts=counts)})
    assert 'class="num">duplicate</th>' not in render(build_model(rows))
    page = render(build_model(some))
    assert page.count('class="num">duplicate</th>') == 2, "in the list, and in the sums of older slices"
    assert page.count('<td class="num">7,654,321</td>') == 1


def test_the_same_rows_give_the_same_page() -> None:
    assert render(build_model(blizzard())) == render(build_model(blizzard()))


@pytest.mark.slow
def test_ten_thousand_slices_need_two_megabytes_and_linear_time() -> None:
    def rendered(days: int) -> None:
        assert len(render(build_model(many_days(days))).encode()) < 2_000_000

    assert growth(rendered, 1_000, 10_000) < 20


def test_a_page_without_slices_renders() -> None:
    from dataclasses import replace

    rows = replace(blizzard(), slices=(), runs={}, published={}, requests=(), publications=(), as_of_ms=None)
    assert "Nothing has been replayed yet" in render(build_model(rows))
    [command] = build_model(rows).commands  # one that needs no range
    assert command.line == "hindcast status flights --lake /var/lake"
