"""Shows plans, differences and published rows in notebooks, without Spark and Airflow.

Each function returns an object that a notebook shows as a table; its `value` is the thing itself.

    from hindcast.notebook import diff, plan, windows

    plan("lake", "flights", from_="2013-02-01", to="2013-02-08")
    diff("lake", "flights", at=(12, 17))
    windows("lake", "flights", keys={"origin": ["JFK"]}, from_="2013-02-08", to="2013-02-09")
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from jobs.comparing.compare import Comparison, compare
from jobs.comparing.differences import Differences
from jobs.comparing.views import request_sides, version_sides
from jobs.lake.lake import Lake
from jobs.ledger.ledger import Ledger
from jobs.pipeline.files import load_pipeline
from jobs.pipeline.slices import check_range, parse_bound
from jobs.planning.change_reach import with_reach
from jobs.planning.plan import Plan
from jobs.planning.request_context import open_request_context
from jobs.planning.steps import Ask
from jobs.readers import published_table
from jobs.review.notebook import differences_html, plan_html, rows_html
from jobs.wall_clock import now_ms
from windowlib.errors import RequestError
from windowlib.libraries import pa

__all__ = ["Shown", "diff", "plan", "windows"]

SAMPLES = 5
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Shown(Generic[Value]):
    """A value that a notebook shows as HTML."""

    value: Value
    _html: Callable[[Value], str] = field(repr=False)

    def _repr_html_(self) -> str:
        return self._html(self.value)


def plan(lake: str | Path, pipeline: str, *, from_: str, to: str, pipelines: str | Path = "pipelines") -> Shown[Plan]:
    """Return which slices of [from_, to) a run would replay, and why, as `hindcast plan` prints it.

    Args:
        lake: the root of the lake, a path or URI.
        pipeline: the name of the pipeline, or the path of its file.
        from_: the edge of a slice at which the range starts.
        to: that at which it ends, not included.
        pipelines: the directory of the pipeline files.

    Raises:
        SpecError: the pipeline file has an error.
        RequestError: the range is wrong.
        LogError, LedgerError: the log or the ledger cannot be read.
    """
    spec = load_pipeline(pipeline, Path(pipelines))
    work = open_request_context(spec, Lake(root=str(lake)), now_ms=now_ms)
    slices = check_range(spec, parse_bound(spec, from_), parse_bound(spec, to), now_ms=work.ledger.now_ms())
    ask = Ask.of_range(slices, pipeline=spec, warm_up=None)
    return Shown(with_reach(spec, work.plan(work.ledger.view(), ask)), plan_html)


def diff(
    lake: str | Path, pipeline: str, *, request: str | None = None, at: tuple[int, int] | int | None = None
) -> Shown[Differences]:
    """Return the rows that two views of a pipeline have differently, as `hindcast diff` prints them.

    Args:
        lake: the root of the lake, a path or URI.
        pipeline: the name of the pipeline.
        request: compare this request with what readers see. By default, the newest one that would change something.
        at: compare what readers saw at two ledger versions; or at one, with what they see now.

    Raises:
        RequestError: both are given, there is no such request or version, or no request would change anything.
        LedgerError, StoreError: the ledger or stored rows cannot be read.
    """
    if request is not None and at is not None:
        raise RequestError("request and at exclude each other; give one of them")
    place = Lake(root=str(lake))
    view = Ledger(place.ledger(pipeline), now_ms=now_ms).view()
    versions = () if at is None else at if isinstance(at, tuple) else (at,)
    sides = version_sides(view, *versions) if versions else request_sides(view, request)
    return Shown(compare(place, pipeline, sides, options=Comparison(samples=SAMPLES)), differences_html)


def windows(lake: str | Path, pipeline: str, **selection: Any) -> "Shown[pa.Table]":  # noqa: ANN401 - as `published`
    """Return published rows. `selection` has the options of `hindcast.reading.published`, which raises the errors."""
    title = f"{pipeline}, {selection.get('table', 'window_outputs')}"
    return Shown(published_table(lake, pipeline, **selection), lambda rows: rows_html(title, rows))
