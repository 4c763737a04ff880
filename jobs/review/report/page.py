"""Renders and writes the report: one self-contained page without scripts and requests, every value escaped."""

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import BaseLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from expectations.formatting import duration, instant
from jobs.comparing.compare import Comparison, compare
from jobs.comparing.differences import number, percent
from jobs.comparing.views import changes_something, request_sides
from jobs.plain_text import agreeing, counted, escaped, escaped_lines, with_capital
from jobs.review.compared import CHEAP_ROWS, MEMORY, Compared, compared, rows_to_read, side_by_side, value_text
from jobs.review.report.checks import CheckTrend, demanded, found_by
from jobs.review.report.commands import bound_text, diff_line
from jobs.review.report.model import DASH, MAX_REQUESTS, ReportModel, Status, build_model, share_text, status_of
from jobs.review.report.rows import ReportRows
from jobs.review.report.slice_calendar import months, strips
from jobs.review.report.style import report_style
from jobs.review.report.svg import overview, share_bar, slices_per_bar, sparkline, stacked_bar, verdict_strip
from jobs.runs import Verdict, by_fate
from jobs.storage import file_system, hidden_file, is_remote
from windowlib.errors import HindcastError, RequestError

if TYPE_CHECKING:
    from jobs.comparing.differences import Differences
    from jobs.lake.lake import Lake
    from jobs.ledger.view import LedgerView, Request
    from jobs.pipeline.models.pipeline import Pipeline


SAMPLES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestDifferences:
    """What a request would change. `problem` is the error if the views cannot be compared."""

    request_id: str
    compared: Compared
    problem: str | None = None


def newest_differences(
    lake: "Lake", pipeline: str, view: "LedgerView", *, most_rows: int = CHEAP_ROWS
) -> RequestDifferences | None:
    """Return what the newest open request would change for readers; None if no open request would change anything.

    A candidate is compared only if there is no other request.

    If the views differ in more than `most_rows` rows, they are not compared. A comparison that fails does not fail the
    report: the report then tells the problem.
    """
    requests = [request for request in view.open_requests() if changes_something(view, request)]
    request = max(requests, key=lambda request: (not request.is_candidate, request.opened_seq), default=None)
    if request is None:
        return None
    sides, problem = request_sides(view, request.request_id), None
    differences: Differences | None = None
    try:
        if rows_to_read(sides) <= most_rows:
            differences = compare(lake, pipeline, sides, options=Comparison(samples=SAMPLES, limits=MEMORY))
    except HindcastError as error:
        problem = str(error)
    return RequestDifferences(request_id=request.request_id, compared=compared(sides, differences), problem=problem)


_MAX_NAMED = 6
_SYMBOLS = {Verdict.PASS: "✓", Verdict.WARN: "!", Verdict.FAIL: "✕", Verdict.ERROR: "?"}


def write_report(lake: "Lake", pipeline: "Pipeline", path: Path | None = None) -> str:
    """Write the page about a pipeline from its ledger and tables.

    An existing page is replaced in one step, so nobody reads a half-written page. Without a `path`, it is
    `reports/<pipeline>.html` in the lake. Returns the path of the written file, or its URI in an object store.

    Raises:
        RequestError: the page cannot be written there.
        LedgerError: the ledger cannot be read.
        StoreError: the late records cannot be read, or differ from those that were written.
    """
    from jobs.review.report.collect import collect_view, without_clock

    view = without_clock(lake, pipeline).ledger.view()
    model = build_model(collect_view(lake, pipeline, view))
    content = render(model, newest_differences(lake, pipeline.name, view)).encode("utf-8", errors="replace")
    place = str(path) if path is not None else lake.below(f"reports/{pipeline.name}.html")
    try:
        if is_remote(place):
            _put(place, content)
        else:
            if path is None:  # a directory that a person has misspelled is not made
                Path(place).parent.mkdir(parents=True, exist_ok=True)
            with hidden_file(place) as hidden:
                Path(hidden).write_bytes(content)
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL character
        raise RequestError(
            f"the report cannot be written to {place.rpartition('/')[0] or '.'}: "
            f"{getattr(error, 'strerror', None) or error}; name another file with --output"
        ) from error
    return place


def _put(uri: str, content: bytes) -> None:
    """Put the page into the object store, which replaces an object as a whole."""
    system, path = file_system(uri)
    with system.open_output_stream(path, metadata={"Content-Type": "text/html; charset=utf-8"}) as out:
        out.write(content)


def render(model: ReportModel, differences: "RequestDifferences | None" = None) -> str:
    """Return the page as HTML; equal models and differences give equal texts.

    `differences` are what the newest open request would change; without them, the page has no section about it.
    """
    style = report_style()
    digest = base64.b64encode(hashlib.sha256(style.encode("utf-8")).digest()).decode("ascii")
    anchors = {line.slice_id: f"s{number}" for number, line in enumerate(model.listed)}
    values = section_values(model, lambda slice_id: f"#{anchors[slice_id]}" if slice_id in anchors else "")
    shown: tuple[Any, ...] = (None,)
    if differences is not None:
        shown = differences.compared, differences.problem, diff_line(model.rows, differences.request_id)
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            style=Markup(style),  # noqa: S704 -- our own file
            style_hash=f"sha256-{digest}",  # the Content-Security-Policy allows only this style
            anchors=anchors,
            is_live=False,
            **values,
            **difference_values(*shown),
        )
    )


def difference_values(compared: Compared | None, problem: str | None = None, line: str = "") -> dict[str, Any]:
    """Return the variables of `sections/differences.html.j2`. The address `here` is empty: there is no server.

    `line` is the command that prints the same.
    """
    return {
        "compared": compared,
        "compare_problem": problem,
        "diff_line": line,
        "side_by_side": side_by_side,
        "value_text": value_text,
        "window_address": None,
        "here": "",
    }


def section(name: str, values: Mapping[str, Any]) -> str:
    """Return a section of the report as an HTML fragment. `name` is its template's, without `.html.j2`."""
    return _environment().get_template(f"sections/{name}.html.j2").render(values)


def section_values(model: ReportModel, slice_href: Callable[[str], str]) -> dict[str, Any]:
    """Return the variables that the templates of the sections need, besides `is_live`.

    `slice_href` returns the address of a slice, empty without one.
    """
    return {
        "m": model,
        "rows": model.rows,
        "hero": _hero(model),
        "months": months(model),
        "strips": strips(model),
        "overview": overview(model.lines),
        "slices_per_bar": slices_per_bar(model.lines),
        "slice_href": slice_href,
        "requests": tuple(reversed(model.rows.requests))[:MAX_REQUESTS],
        "publications": tuple(reversed(model.rows.publications))[:MAX_REQUESTS],
        "request_range": lambda request: _request_range(request, model.rows),
    }


@cache
def _environment() -> Environment:
    environment = template_environment(PackageLoader("jobs.review.report"))
    environment.globals.update(helpers())
    return environment


def helpers() -> Mapping[str, Any]:
    """Return the functions that the templates of the report and of the review pages call."""
    return {
        "bar": stacked_bar,
        "spark": sparkline,
        "strip": verdict_strip,
        "share_bar": share_bar,
        "agreeing": agreeing,
        "counted": counted,
        "share": share_text,
        "fates": by_fate,
        "passed": lambda check: check.counts.get(Verdict.PASS, 0),
        "not_passed": lambda check: len(check.points) - check.counts.get(Verdict.PASS, 0),
        "status_of": status_of,
        "demanded": demanded,
        "found_by": found_by,
        "verdict_symbol": _SYMBOLS.__getitem__,
        "curve_range": _curve_range,
        "duration": duration,
        "instant": instant,
        "slice_list": _slice_list,
        "amount": number,
        "relative": percent,
    }


def _hero(model: ReportModel) -> Status:
    """Return the status whose symbol is beside the headline: the status that the headline is about."""
    if stopped := model.failed or model.held:
        return Status.FAIL if any(status_of(card.run) is Status.FAIL for card in stopped) else Status.ERROR
    numbers = dict(model.statuses)
    order = (Status.STAGED, Status.FAIL, Status.ERROR, Status.MISSING, Status.WAIVED, Status.WARN, Status.EMPTY)
    return next((status for status in order if numbers[status]), Status.PASS if model.rows.runs else Status.MISSING)


def _curve_range(check: CheckTrend) -> str:
    values = [point.value for point in check.points if point.value is not None]
    what = f" ({check.unit})" if check.unit != check.newest.column else ""
    return f"from {check.spelled(min(values))} to {check.spelled(max(values))}{what}"


def _request_range(request: "Request", rows: ReportRows) -> str:
    if request.from_ms is None or request.to_ms is None:
        return counted(len(request.runs), "slice") if request.runs else DASH
    return f"[{bound_text(request.from_ms, rows)}, {bound_text(request.to_ms, rows)})"


def _slice_list(slice_ids: Sequence[str]) -> str:
    if len(slice_ids) <= _MAX_NAMED:
        return ", ".join(slice_ids) or "nothing"
    return f"{counted(len(slice_ids), 'slice')}, from {slice_ids[0]} to {slice_ids[-1]}, the last one included"


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
    return Markup("<br>").join(escape(line) for line in escaped_lines(value[: 10 * MAX_TEXT]).split("\n"))
