"""What the pages of one request need: the pipelines, the lake, the view of a ledger, the user and what he may do.

The api-server finds pipelines and lake as the tasks do, by HINDCAST_PIPELINES and HINDCAST_LAKE.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, wraps
from pathlib import Path
from typing import Annotated, ParamSpec, TypeVar

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import Depends, HTTPException, Request

from jobs.airflow_ui.security import may_decide, may_read
from jobs.airflow_ui.views import Views
from jobs.lake.delta_tables import opening_tables_once
from jobs.lake.lake import Lake
from jobs.ledger.view import LedgerView
from jobs.pipeline.files import BrokenPipeline, PipelineFiles, load_all
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import slice_at, slice_grid
from jobs.planning.published_spec import on_published_spec
from jobs.planning.request_context import RequestContext, open_request_context
from jobs.project import HOME, PIPELINES
from jobs.reading.log_places import opening_logs_once
from jobs.review.pages.decision_forms import DecisionForms, decision_forms
from jobs.runs import Slice
from jobs.wall_clock import now_ms
from windowlib.errors import HindcastError, RequestError, StoreError

VIEWS = Views()
"""The views of this process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The directory of pipeline files, and the root of the lake."""

    pipelines: Path
    lake_root: str

    @classmethod
    def of_environment(cls) -> "Site":
        """Return the site that the environment names; by default that of the clone, or the working directory."""
        pipelines = Path(os.environ.get("HINDCAST_PIPELINES") or PIPELINES)
        return cls(pipelines=pipelines, lake_root=os.environ.get("HINDCAST_LAKE") or str(HOME / "lake"))

    def files(self) -> PipelineFiles:
        """Return all pipeline files, good and broken. A file is parsed again only after a change.

        Raises SpecError: the directory cannot be read.
        """
        return _loaded(self.pipelines, _state_of(self.pipelines))

    def pipeline(self, name: str) -> Pipeline | None:
        """Return the pipeline of a good file; None if there is none of this name. Raises as `files`."""
        return next((pipeline for pipeline in self.files().good if pipeline.name == name), None)

    def request_context(self, pipeline: Pipeline) -> RequestContext:
        """Return the context of a pipeline in the lake. Raises as `lake`."""
        return open_request_context(pipeline, self.lake(), now_ms=now_ms)

    def lake(self) -> Lake:
        """Return the lake.

        Raises:
            SpecError: its root is not a place that can be read.
            StoreError: it does not exist, or cannot be read.
        """
        opened = Lake(root=self.lake_root)
        try:
            opened.check(must_exist=True)
        except RequestError as error:  # the person who opens a page has not asked for this lake
            raise StoreError(str(error)) from error
        return opened


@lru_cache(maxsize=8)
def _loaded(pipelines: Path, _state: object) -> PipelineFiles:
    return load_all(pipelines)


def _state_of(directory: Path) -> tuple[tuple[str, int, int, int], ...] | None:
    """Return the name, size, time and inode of each file, by which a change is seen; None if that cannot be read."""
    try:
        stats = [(entry.name, entry.stat()) for entry in os.scandir(directory) if entry.is_file()]
    except (OSError, ValueError):
        return None
    return tuple(sorted((name, stat.st_size, stat.st_mtime_ns, stat.st_ino) for name, stat in stats))


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineContext:
    """One pipeline that the user may see: its file, lake and newest view, and whether the user may decide on it."""

    pipeline: Pipeline
    lake: Lake
    view: LedgerView
    user: BaseUser
    may_decide: bool

    @property
    def name(self) -> str:
        return self.pipeline.name

    @property
    def request_context(self) -> RequestContext:
        """The context, for the rules of publication. The pages do not write into its ledger."""
        return open_request_context(self.pipeline, self.lake, now_ms=now_ms)

    @property
    def published_pipeline(self) -> Pipeline:
        """The pipeline with the spec of the published chain, whose slices the pages show."""
        return on_published_spec(self.request_context, self.view)[0].pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionPlace:
    """A place on a page where the forms of decisions are shown: for a request, a run, or a publication.

    `return_to` is the path of the page to which the answer comes back. `entered` and `problem` are set if a decision
    was refused: the fields that were entered, and why.
    """

    context: PipelineContext
    return_to: str
    request_id: str | None = None
    run_id: str | None = None
    publication: int | None = None
    entered: dict[str, str] = field(default_factory=dict)
    problem: str | None = None

    @property
    def forms(self) -> DecisionForms:
        """The decisions that are possible here now."""
        return decision_forms(
            self.context.request_context,
            self.context.view,
            request_id=self.request_id,
            run_id=self.run_id,
            publication=self.publication,
        )


def find_pipeline(name: str, user: BaseUser) -> Pipeline:
    """Return a pipeline that the user may see, by its name.

    Raises:
        HTTPException: 404, there is no such pipeline; 403, the user may not see it; 503, its file is broken.
        SpecError: the directory of pipeline files cannot be read.
    """
    site = Site.of_environment()
    good = site.pipeline(name)
    broken: BrokenPipeline | None = next((entry for entry in site.files().broken if entry.name == name), None)
    if good is None and broken is None:
        raise HTTPException(404, f"There is no pipeline {name!r}.")
    if not may_read(user, name):
        raise HTTPException(403, f"You may not see the pipeline {name}: Airflow does not let you read its DAGs.")
    if good is None:
        assert broken is not None, "one of both was found"
        raise HTTPException(503, f"The file of pipeline {name} has an error. {broken.error}")
    return good


def pipeline_context(request: Request, pipeline: str, user: GetUserDep) -> PipelineContext:
    """Return the context of the pipeline that the path names.

    Raises:
        HTTPException: as `find_pipeline`.
        HindcastError: the lake or the ledger cannot be read.
    """
    visible_pipeline = find_pipeline(pipeline, user)
    made = open_context(visible_pipeline, user)
    request.state.pipeline = visible_pipeline.name  # the error page links to the pipeline
    return made


def open_context(pipeline: Pipeline, user: BaseUser) -> PipelineContext:
    """Return the context of a pipeline that the user may see.

    Raises HindcastError: the lake or the ledger cannot be read.
    """
    lake = Site.of_environment().lake()
    return PipelineContext(
        pipeline=pipeline,
        lake=lake,
        view=VIEWS.view(lake, pipeline.name),
        user=user,
        may_decide=may_decide(user, pipeline.name),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Visible:
    """The pipelines that a user may see. `failed` maps a pipeline to why its lake or ledger cannot be read."""

    contexts: tuple[PipelineContext, ...]
    broken: tuple[BrokenPipeline, ...]
    failed: dict[str, str]


def visible(user: BaseUser) -> Visible:
    """Return all pipelines that a user may see. One that cannot be read does not hide the others (law L10).

    Raises SpecError: the directory of pipeline files cannot be read.
    """
    files = Site.of_environment().files()
    contexts, failed = [], {}
    for pipeline in files.good:
        if not may_read(user, pipeline.name):
            continue
        try:
            contexts.append(open_context(pipeline, user))
        except HindcastError as error:
            failed[pipeline.name] = str(error)
    broken = tuple(entry for entry in files.broken if may_read(user, entry.name))
    return Visible(contexts=tuple(contexts), broken=broken, failed=failed)


def readers_of(name: str, slice_: Slice, user: BaseUser) -> tuple[tuple[str, str], ...]:
    """Return the pipelines that the user may see and that read a table of a pipeline, each with its slice.

    Raises SpecError: the directory of pipeline files cannot be read.
    """
    readers = (pipeline for pipeline in Site.of_environment().files().good if pipeline.log.pipeline == name)
    return tuple(
        (reader.name, slice_at(slice_grid(reader), slice_.start_ms).slice_id)
        for reader in readers
        if may_read(user, reader.name)
    )


def read_ahead() -> None:
    """Read the ledgers of all pipelines, so that the first pages find them read.

    Raises HindcastError: the pipelines or the lake cannot be read.
    """
    site = Site.of_environment()
    lake = site.lake()
    for pipeline in site.files().good:
        with suppress(HindcastError):  # the pages of that pipeline tell why
            VIEWS.view(lake, pipeline.name)


_Parameters = ParamSpec("_Parameters")
_Answer = TypeVar("_Answer")


def opening_once(route: Callable[_Parameters, _Answer]) -> Callable[_Parameters, _Answer]:
    """Let a route open each table and log once. Opening a table with 10,000 files takes 0.2 s."""

    @wraps(route)
    def opened(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Answer:
        with opening_tables_once(), opening_logs_once():
            return route(*args, **kwargs)

    return opened


PipelineDep = Annotated[PipelineContext, Depends(pipeline_context)]
"""The context of the pipeline in the path, as a dependency of a route."""
