"""What has happened to a pipeline since yesterday, and what waits for a person: for a message and a page."""

from collections.abc import Sequence
from dataclasses import dataclass

from expectations.formatting import percent
from jobs.ledger.publications import PublicationId, published_since
from jobs.ledger.run_projection import failing_in_sight
from jobs.ledger.view import LedgerView, StagedRun
from jobs.pipeline.slices import show_instant
from jobs.plain_text import counted
from jobs.planning.request_context import RequestContext
from jobs.planning.standing import Standing
from jobs.publishing.rules import describe_hold
from jobs.publishing.stop_reasons import described, listed
from jobs.review.freshness import Freshness, freshness
from jobs.review.pages.state import held_slices


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """The news of a pipeline.

    The news count from `since_ms` on. Readers did not see the `published` slices before, saw another run of the
    `restated` ones, and do not see the `withdrawn` ones any more. `records` were read by the runs of the first two,
    `late` of them late. `failed` are the runs that readers see with an error, or with a failed check that nobody has
    waived. `waits` is what the schedule waits for, and `unarrived` are the slices that are due and not complete.
    `left_out` are stretches before the head that readers do not see, with what replays them. `empty` are new slices
    without a record, and `changed` published ones whose input in the log is another one now.
    """

    since_ms: int
    freshness: Freshness
    published: tuple[str, ...]
    restated: tuple[str, ...]
    withdrawn: tuple[str, ...]
    records: int
    late: int
    held: tuple[str, ...]
    failed: tuple[StagedRun, ...]
    waits: str
    unarrived: tuple[str, ...]
    left_out: tuple[str, ...]
    empty: tuple[str, ...]
    changed: tuple[str, ...]

    @property
    def rows(self) -> tuple[tuple[str, str], ...]:
        """The digest as (name, text) pairs."""
        share = (
            "none" if not self.records else f"{percent(self.late / self.records)} of {counted(self.records, 'record')}"
        )
        return (
            ("Freshness", self.freshness.text),
            ("Published", _named(self.published)),
            ("Late", share),
            ("Restated", _named(self.restated)),
            ("Taken back", _named(self.withdrawn)),
            ("Held", "; ".join(self.held) or "none"),
            ("Published, but failed", described(self.failed) or "none"),
            ("Waiting", f"{_named(self.unarrived)}: {self.waits}" if self.waits else _named(self.unarrived)),
            ("Left out", "; ".join(self.left_out) or "none"),
            ("Empty", _named(self.empty)),
            ("Changed in the log", _named(self.changed)),
        )

    @property
    def subject(self) -> str:
        """The digest in a few words."""
        groups = (
            (self.published, "published"), (self.restated, "restated"), (self.withdrawn, "taken back"),
            (self.held, "held"), (self.failed, "published, but failed"),
            (self.unarrived, "waiting"), (self.empty, "empty"), (self.changed, "changed"),
        )  # fmt: skip
        words = [f"{len(slices):,} {name}" for slices, name in groups if slices]
        words += [f"{counted(len(self.left_out), 'gap')} before the head"] if self.left_out else []
        return ", ".join(words) or "no news"


def digest(
    work: RequestContext, view: LedgerView, state: Standing, *, since_ms: int, newest: PublicationId | None = None
) -> Digest:
    """Return the news of a pipeline since an instant, or since a publication was the `newest`, if that is known.

    Raises HindcastError: as `jobs.review.freshness.freshness` raises.
    """
    news = published_since(view.publications, since_ms, newest=newest)
    before = view.published_at(news[0].seq - 1) if news else dict(view.published)
    now = view.published
    published = tuple(slice_id for slice_id in now if slice_id not in before)
    restated = tuple(slice_id for slice_id in now if slice_id in before and before[slice_id] != now[slice_id])
    counts = [view.run(now[slice_id]).result.counts for slice_id in (*published, *restated)]
    return Digest(
        since_ms=since_ms,
        freshness=freshness(work, view),
        published=published,
        restated=restated,
        withdrawn=tuple(slice_id for slice_id in before if slice_id not in now),
        records=sum(count.read for count in counts),
        late=sum(count.late for count in counts),
        held=(
            *(f"{held.slice_id} since {show_instant(held.since_ms)}: {held.reason}" for held in held_slices(view)),
            *((describe_hold(view.hold),) if view.hold is not None else ()),
        ),
        failed=tuple(failing_in_sight(view)),
        waits="" if state.waiting is None else state.waiting.missing,
        unarrived=tuple(slice_.slice_id for slice_ in state.unarrived),
        left_out=tuple(hole.sentence for hole in state.holes),
        empty=tuple(slice_.slice_id for slice_ in state.empty if slice_.slice_id in {*published, *restated}),
        changed=tuple(change.slice.slice_id for change in state.changed),
    )


def _named(slices: Sequence[str]) -> str:
    return f"{counted(len(slices), 'slice')}: {listed(slices)}" if slices else "none"
