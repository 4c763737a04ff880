"""What a person should know before a request is run, because its publication changes more than the plan lists."""

from collections.abc import Iterator

from jobs.lake.checkpoint_rows import read_checkpoint
from jobs.lake.lake import Lake
from jobs.ledger.view import LedgerView, StagedRun
from jobs.plain_text import counted
from jobs.planning.chains import run_before
from jobs.planning.plan import Plan
from jobs.publishing.rules import told_end_of_repairs
from jobs.publishing.stop_reasons import listed
from jobs.runs import EMPTY_STATE
from windowlib.errors import HindcastError
from windowlib.libraries import pc
from windowlib.records.tables import WINDOW_STATE

_OF_STATE = ("window_end_ms", "edge_count", "fired_count", "is_orphan")


def publication_warnings(lake: Lake, view: LedgerView, planned: Plan) -> tuple[str, ...]:
    """Return sentences on a chain that begins anew inside the published one, a former spec, and repairs that end."""
    return (*_fresh_border(lake, view, planned), *_former_spec(view, planned), *_ended_repairs(view, planned))


def _fresh_border(lake: Lake, view: LedgerView, planned: Plan) -> Iterator[str]:
    """Yield what readers lose if a chain begins without earlier records directly after a published slice."""
    if not planned.basis.ask.is_fresh:
        return
    first = planned.range[0].slice
    before, shown = run_before(view, first), view.runs.get(view.chain_run_id(view.published.get(first.slice_id, "")))
    if before is None or (shown is not None and shown.result.state_before == EMPTY_STATE):
        return
    count = _waiting_windows(lake, planned.pipeline, before)
    if count == 0:
        return
    waiting = "the windows" if count is None else counted(count, "window")
    yield (
        f"a new chain begins at {first.slice_id}, and readers see {before.result.slice.slice_id} of the former chain. "
        f"Readers do not see {waiting} with records that wait there for their end. A record that was late can be on "
        "time in the new chain, and its window then replaces a window of the former chain that has more records"
    )


def _former_spec(view: LedgerView, planned: Plan) -> Iterator[str]:
    """Yield which slices readers would see by runs that they saw before another spec was published."""
    runs = {step.slice.slice_id: step.valid_run for step in planned.range if not step.is_published}
    valid = {name: run.result.run_id for name, run in runs.items() if run is not None}
    before = {run_id for past in view.publications for run_id in past.changes.values()} if valid else set()
    shown = {name: view.published_chain_run(name) for name, run_id in valid.items() if run_id in before}
    spec = planned.spec_fingerprint
    again = [name for name, run in shown.items() if run is not None and run.result.spec_fingerprint != spec]
    if again:
        yield (
            f"readers see {listed(again)} by another spec, which was published after that of this pipeline file. If "
            "the run publishes, it takes that spec back"
        )


def _waiting_windows(lake: Lake, pipeline: str, run: StagedRun) -> int | None:
    """Return how many windows have records that no pane has after a run; None if its state is not stored."""
    if run.checkpoint_removal is not None:
        return None
    try:
        rows = read_checkpoint(
            lambda name: lake.table(pipeline, name), run.checkpoint.attempts, WINDOW_STATE, columns=_OF_STATE
        )
    except HindcastError:  # the run that starts from this state tells it
        return None
    if not rows.num_rows or "edge_count" not in rows.column_names:
        return 0
    is_orphan = rows["is_orphan"].fill_null(False)  # noqa: FBT003 - the value that replaces a null
    waits = pc.and_not(pc.greater(rows["edge_count"], rows["fired_count"]), is_orphan)
    return int(rows.filter(waits).num_rows)


def _ended_repairs(view: LedgerView, planned: Plan) -> Iterator[str]:
    """Yield a sentence if readers see a repair of slices of which they would get other runs."""
    new = [step.slice for step in planned.range if not step.is_beyond and not (step.valid_run and step.is_published)]
    told = told_end_of_repairs(planned.basis.pipeline, view, dict.fromkeys(new, planned.spec_fingerprint))
    if told:
        yield f"if the run publishes other runs of these slices, {told}"
