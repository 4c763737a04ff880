"""The two views that a comparison reads: a request and what readers see, two ledger versions, or two runs."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from jobs.ledger.view import LedgerView, Request, RequestState, StagedRun
from jobs.planning.chains import newly_shown
from windowlib.errors import RequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One view: its name for people, and the run of each slice (slice id -> run), in slice order."""

    name: str
    runs: Mapping[str, StagedRun]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """Two views of one pipeline in the ledger `view`. `request_id` is set if `after` is the result of a request."""

    view: LedgerView
    before: Side
    after: Side
    request_id: str | None = None

    @property
    def slices(self) -> tuple[str, ...]:
        """The slices whose runs differ, in order."""
        before, after = (
            {name: run.result.run_id for name, run in side.runs.items()} for side in (self.before, self.after)
        )
        return tuple(name for name in sorted({*before, *after}) if before.get(name) != after.get(name))

    @property
    def differing(self) -> tuple[StagedRun, ...]:
        """The runs of these slices in both views."""
        runs = (side.runs.get(name) for side in (self.before, self.after) for name in self.slices)
        return tuple(run for run in runs if run is not None)


def request_sides(view: LedgerView, request_id: str | None = None) -> Sides:
    """Return what readers see, and what they would see after the publication of a request.

    For a published request: what they saw directly before and after its publication. `request_id` may be the first
    letters of an id; None: the newest open request that changes something.
    Raises RequestError: there is no such request, or several.
    """
    if request_id is None:
        changing = (request for request in reversed(view.open_requests()) if changes_something(view, request))
        request = next(changing, None)
    else:
        request = view.requests[_full_id("request", request_id, view.requests)]
    if request is None:
        raise RequestError(
            "no open request would change what readers see; name a request, two ledger versions or two runs"
        )
    what = _name(request)
    if request.state is RequestState.PUBLISHED:
        publications = [publication for publication in view.publications if not publication.is_rollback]
        seqs = [publication.seq for publication in publications if publication.request_id == request.request_id]
        if seqs:
            before = _seen(view, seqs[-1] - 1, f"what readers saw before publication {seqs[-1]}")
            after = _seen(view, seqs[-1], f"publication {seqs[-1]} ({what})")
            return Sides(view=view, before=before, after=after, request_id=request.request_id)
    return Sides(
        view=view,
        before=_side(view, f"what readers see (ledger version {view.version})", view.published),
        after=_side(view, what, _after(view, request)),
        request_id=request.request_id,
    )


def _after(view: LedgerView, request: Request) -> dict[str, str]:
    """Return slice -> run of what readers would see after the publication of a request."""
    return {**view.published, **request.runs, **newly_shown(view, request)}


def two_requests_sides(view: LedgerView, before: str, after: str) -> Sides:
    """Return what readers would see after the publication of one request, and of another one in its place.

    Raises RequestError: there is no such request, or several.
    """
    requests = [view.requests[_full_id("request", given, view.requests)] for given in (before, after)]
    sides = [_side(view, _name(request), _after(view, request)) for request in requests]
    return Sides(view=view, before=sides[0], after=sides[1])


def version_sides(view: LedgerView, before: int, after: int | None = None) -> Sides:
    """Return what readers saw at two versions of the ledger; `after` is the newest when None.

    Raises RequestError: the ledger has no such version.
    """
    versions = before, view.version if after is None else after
    for version in versions:
        if not 0 <= version <= view.version:
            raise RequestError(
                f"the ledger has no version {version}; allowed: 0 to {view.version}. `hindcast status` shows the "
                "newest publication"
            )
    sides = [_seen(view, version, f"ledger version {version}") for version in versions]
    return Sides(view=view, before=sides[0], after=sides[1])


def run_sides(view: LedgerView, before: str, after: str | None = None) -> Sides:
    """Return the rows of two runs of one slice, without those of other slices.

    A run is named by its id, or by its first letters. Without `after`, `before` is compared with the run of its slice
    that readers see, which then comes first.
    Raises RequestError: there is no such run, or several; the runs are of different slices; or `after` is None and the
    slice is not published.
    """
    run = _run(view, before)
    slice_id = run.result.slice.slice_id
    if after is None:
        seen = view.published_run(slice_id)
        if seen is None:
            raise RequestError(f"slice {slice_id} of run {before} is not published; name a second run")
        first, second = seen, run
    else:
        first, second = run, _run(view, after)
    if second.result.slice != first.result.slice:
        raise RequestError(
            f"run {before} is of slice {slice_id}, and run {after} of slice {second.result.slice.slice_id}; compare "
            "two runs of one slice, or two ledger versions"
        )
    sides = [Side(name=f"run {run.result.run_id[:12]}", runs={slice_id: run}) for run in (first, second)]
    return Sides(view=view, before=sides[0], after=sides[1])


def changes_something(view: LedgerView, request: Request) -> bool:
    """Return whether readers would see other runs after the publication of a request, also where a repair ends."""
    return any(view.published.get(slice_id) != run_id for slice_id, run_id in newly_shown(view, request).items())


def differing_request(view: LedgerView, request_id: str) -> Request | None:
    """Return the request if the ledger has it and it changes something."""
    request = view.requests.get(request_id)
    return request if request is not None and changes_something(view, request) else None


def _name(request: Request) -> str:
    return f"{'candidate' if request.is_candidate else 'request'} {request.request_id[:12]}"


def _full_id(what: str, given: str, ids: Collection[str]) -> str:
    """Return the id that begins with the given letters."""
    matching = [given] if given in ids else [name for name in ids if given and name.startswith(given)]
    if not matching:
        raise RequestError(f"the ledger has no {what} {given!r}; `hindcast status` lists the open requests")
    if len(matching) > 1:
        raise RequestError(
            f"{len(matching)} {what}s begin with {given!r}, such as {matching[0]} and {matching[1]}; give more letters"
        )
    return matching[0]


def _run(view: LedgerView, run_id: str) -> StagedRun:
    return view.run(_full_id("run", run_id, view.runs))


def _seen(view: LedgerView, version: int, name: str) -> Side:
    return _side(view, name, view.published_at(version))


def _side(view: LedgerView, name: str, runs: Mapping[str, str]) -> Side:
    return Side(name=name, runs={slice_id: view.run(runs[slice_id]) for slice_id in sorted(runs)})
