"""The messages of the DAG `alert_<name>`: what is not published, not there, or held at its time; and the daily digest.

The DAG runs at each time of day that the pipeline file names, and every half hour if it has `held_longer_than`. A run
sends each message whose time has passed since the last run, so a run that comes late misses none. `Told` is what
earlier runs have told; the task keeps it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Self

from jobs.durations import UNIT_MS, human_duration
from jobs.ledger.publications import PublicationId, newest_id, published_since
from jobs.ledger.view import LedgerView
from jobs.orchestration.alerts import MAX_ERROR, Alert, Event, listed_lines, make_alert
from jobs.orchestration.plan_outline import folded
from jobs.pipeline.models.alerts import AlertsGrammar
from jobs.pipeline.slices import local_midnight_ms, show_instant, slice_grid, slices_ending_in
from jobs.plain_text import counted, escaped, shortened
from jobs.planning.published_spec import on_published_spec, why_lost
from jobs.planning.request_context import RequestContext, covers, is_live
from jobs.planning.standing import Standing, due_slices, empty_slices, holes, standing
from jobs.publishing.rules import describe_hold
from jobs.publishing.stop_reasons import stop_reasons, what_to_do
from jobs.review import links
from jobs.review.digest import digest
from jobs.review.pages.state import HeldSlice, held_slices
from jobs.runs import Slice
from windowlib.errors import HindcastError, LedgerError, LogError

_DAY_MS = UNIT_MS["d"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What was told before.

    `times`: key -> when the message was last looked at. `newest`: key -> the newest publication then. `causes`: those
    that still last.
    """

    times: Mapping[str, int]
    causes: frozenset[str]
    newest: Mapping[str, PublicationId] = field(default_factory=dict)

    @classmethod
    def read(cls, stored: object) -> Self:
        """Return what `to_json` has stored; nothing if it is not known."""
        content = stored if isinstance(stored, Mapping) else {}
        times, causes = content.get("times", {}), content.get("causes", [])
        return cls(
            times={str(key): int(at_ms) for key, at_ms in times.items()},
            causes=frozenset(map(str, causes)),
            newest={str(key): PublicationId(*map(int, pair)) for key, pair in content.get("newest", {}).items()},
        )

    def to_json(self) -> dict[str, Any]:
        """Return the content as plain data, for Airflow."""
        newest = {key: [*publication] for key, publication in self.newest.items()}
        return {"times": dict(self.times), "causes": sorted(self.causes), "newest": newest}


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message, and its causes: it is sent again when it has a new one. Without causes, it is sent each time."""

    alert: Alert
    causes: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The messages to send now, what was told `before`, and what is `told` when all of them are sent."""

    messages: tuple[Message, ...]
    before: Told
    told: Told

    def told_without(self, unsent: Sequence[Message]) -> Told:
        kept = {_TIMES.get(message.alert.event) for message in unsent}
        new = {cause for message in unsent for cause in message.causes - self.before.causes}
        before, told = self.before, self.told
        return Told(
            times={key: at_ms for key, at_ms in told.times.items() if key not in kept}
            | {key: at_ms for key, at_ms in before.times.items() if key in kept},
            causes=told.causes - new,
            newest={key: newest for key, newest in told.newest.items() if key not in kept}
            | {key: newest for key, newest in before.newest.items() if key in kept},
        )


def look(
    work: RequestContext,
    alerts: AlertsGrammar,
    told: Told,
    *,
    url: Callable[[str], str],
    everything: bool = False,
    broken: str = "",
) -> Checked:
    """Return the messages that are due now, and what is told with them.

    The clock of the ledger gives the time. `told` is what earlier runs have told, and `url` returns the address of a
    page. With `everything`, also times of day are looked at that were looked at today. `broken` is the error of the
    pipeline file, which is told once a day.
    Raises LedgerError: the ledger cannot be read.
    """
    now_ms, view = work.ledger.now_ms(), work.ledger.view()
    work, _ = on_published_spec(work, view)
    # The first look counts from the day before on. Airflow may start it before its time by the clock of this machine.
    times = {key: _last_ms(time, before_ms=now_ms // _DAY_MS * _DAY_MS - 1) for key, time in alerts.times.items()}
    # A clock that was ahead has left a time in the future. With it, the messages of days would be left out.
    times |= {key: at_ms if at_ms <= now_ms else now_ms - _DAY_MS for key, at_ms in told.times.items()}
    due = {key for key, time in alerts.times.items() if everything or times[key] < _last_ms(time, before_ms=now_ms)}
    place = _Place(work=work, view=view, url=url, told=replace(told, times=times))
    messages: list[Message | None] = [_broken(place, broken)] if broken and alerts.failed else []
    if "data_not_there_by" in due:
        messages.append(_or_why_not(place, Event.NOT_THERE, lambda: _not_there(place)))
    if "not_published_by" in due:
        messages.append(_or_why_not(place, Event.NOT_PUBLISHED, lambda: _not_published(place)))
    if alerts.held_longer_than_ms is not None:
        messages += _held_long(place, alerts.held_longer_than_ms)
    if "digest_at" in due:
        messages.append(_or_why_not(place, Event.DIGEST, lambda: _digest(place)))
    lasting = [message for message in messages if message is not None]
    new = tuple(message for message in lasting if everything or not message.causes or message.causes - told.causes)
    causes = {cause for message in lasting for cause in message.causes}
    if "data_not_there_by" not in due:
        causes |= {cause for cause in told.causes if cause.startswith(_DATA)}
    return Checked(
        messages=new,
        before=place.told,
        told=Told(
            times=times | dict.fromkeys(due, now_ms),
            causes=frozenset(causes),
            newest={**told.newest, **dict.fromkeys(due, newest_id(view.publications))},
        ),
    )


_DATA, _HELD, _BROKEN = "no data ", "held ", "broken "
"""How the causes of messages begin."""
_TIMES = {Event.NOT_THERE: "data_not_there_by", Event.NOT_PUBLISHED: "not_published_by", Event.DIGEST: "digest_at"}
"""The time of day of a message in the pipeline file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """What the messages are made of."""

    work: RequestContext
    view: LedgerView
    url: Callable[[str], str]
    told: Told

    def since_ms(self, key: str) -> int:
        """Return when a message was last looked at."""
        return self.told.times[key]

    @property
    def name(self) -> str:
        return self.work.pipeline.name

    @property
    def page(self) -> str:
        return self.url(links.pipeline_page(self.name))

    def message(
        self, event: Event, subject: str, *, what: tuple[str, ...], to_do: str, slices: tuple[str, ...] = (),
        causes: Iterable[str] = (), url: str | None = None,
    ) -> "Message":  # fmt: skip
        """Return a message on the pipeline, which leads to its page if `url` names no other."""
        alert = make_alert(event, self.name, subject, slices=slices, what=what, to_do=to_do, url=url or self.page)
        return Message(alert=alert, causes=frozenset(causes))

    @property
    def midnight_ms(self) -> int:
        """The start of today, in the time zone of the slices."""
        return local_midnight_ms(slice_grid(self.work.pipeline), self.work.ledger.now_ms())

    def of_the_days_before(self) -> tuple[Standing, tuple[Slice, ...]]:
        """Return where the pipeline stands with the slices that have ended before today, and those not published.

        If the log is empty and the pipeline file names the first slice, all slices from it on are missing.
        """
        state = standing(self.work, self.view, until_ms=self.midnight_ms)
        first_ms = slice_grid(self.work.pipeline).first_ms
        if state.due or state.head is not None or state.newest_data is not None or first_ms is None:
            return state, state.due
        return state, slices_ending_in(self.work.pipeline, first_ms, self.midnight_ms)


def _broken(place: _Place, error: str) -> Message:
    """Return the message that the pipeline file is broken. Its cause is the day."""
    return place.message(
        Event.FAILED,
        "the pipeline file is broken",
        what=("No slice is replayed until it is corrected:", f"  {shortened(escaped(error), MAX_ERROR)}"),
        to_do="Correct the file",
        causes=[f"{_BROKEN}{place.midnight_ms}"],
    )


def _or_why_not(place: _Place, event: Event, make: Callable[[], Message | None]) -> Message | None:
    """Return a message; if it cannot be made, for example because the log is missing, a message that tells why."""
    try:
        return make()
    except LedgerError:
        raise  # Airflow tries again
    except HindcastError as error:
        what = ("Where the pipeline stands is not known:", *listed_lines([str(error)]))
        return place.message(event, f"{event.value}: not known", what=what, to_do="Correct the cause")


def _last_ms(time: str, *, before_ms: int) -> int:
    """Return when a time of day, in UTC, was last reached at an instant."""
    at_ms = int(time[:2]) * UNIT_MS["h"] + int(time[3:]) * UNIT_MS["m"]
    return (before_ms - at_ms) // _DAY_MS * _DAY_MS + at_ms


def _not_published(place: _Place) -> Message | None:
    """Return the message on slices of the days before that readers do not see, or that were published empty.

    Slices that the schedule never comes back to are told each day.
    Raises LogError: the log cannot be read, and readers see all slices that are over.
    """
    try:
        state, missing = place.of_the_days_before()
        reasons = [f"{folded(ids)}: {why}" for ids, why in _grouped(place, state, missing)]
    except LogError as error:  # a person has to decide, for example on records that a commit removed
        missing = due_slices(place.work, place.view, place.midnight_ms)
        if not missing:
            raise
        reasons = [f"{folded([slice_.slice_id for slice_ in missing])}: {error}"]
    empty, left_out = _newly_empty(place), tuple(holes(place.work, place.view))
    if not missing and not empty and not left_out:
        return None
    reasons += [hole.sentence for hole in left_out]
    reasons += [f"{folded(empty)}: published empty, without a record"] if empty else []
    of_holes = [slice_id for hole in left_out for slice_id in hole.ids]
    slices = tuple(sorted({*(slice_.slice_id for slice_ in missing), *empty, *of_holes}))
    parts = [f"{folded([slice_.slice_id for slice_ in missing])} not visible to readers"] if missing else []
    parts += [f"{' … '.join(hole.ids)} left out" for hole in left_out]
    parts += [f"{folded(empty)} published empty"] if empty else []
    hold = [] if place.view.hold is None else [describe_hold(place.view.hold)]
    at = show_instant(place.work.ledger.now_ms() // 1000 * 1000)
    return place.message(
        Event.NOT_PUBLISHED,
        "; ".join(parts),
        slices=slices,
        what=(f"Readers do not see these slices, or see them empty, at {at}:", *listed_lines([*hold, *reasons])),
        to_do="Open the page: it shows what the slices wait for",
    )


def _newly_empty(place: _Place) -> tuple[str, ...]:
    """Return the empty slices that were published since the last look: each is told once, after its publication."""
    key, view = _TIMES[Event.NOT_PUBLISHED], place.view
    past = published_since(view.publications, place.since_ms(key), newest=place.told.newest.get(key))
    news = {slice_id for publication in past for slice_id in publication.changes}
    return tuple(slice_.slice_id for slice_ in empty_slices(view) if slice_.slice_id in news)


def _grouped(place: _Place, state: Standing, missing: Sequence[Slice]) -> Iterator[tuple[list[str], str]]:
    """Yield the ids of neighbouring slices that readers do not see for the same reason, and the reason."""
    if not missing:
        return
    coordinates = place.work.log_state(place.view, missing).coordinates
    unarrived, lost = {slice_.slice_id for slice_ in state.unarrived}, why_lost(place.work, place.view)

    def why(slice_: Slice) -> str:
        in_request = _of_a_request(place, slice_)
        if in_request:
            return in_request
        records = coordinates[slice_.slice_id].records
        waiting = state.waiting
        if not records:
            return "no data has arrived"
        if waiting is not None and waiting.slice == slice_:
            until = "" if waiting.until_ms is None else f", until {show_instant(waiting.until_ms)}"
            return f"not complete since {show_instant(waiting.since_ms)}{until}: {waiting.missing}"
        if slice_.slice_id in unarrived:
            return f"{counted(records, 'record')}; an earlier slice is not complete"
        return f"complete, but no request has replayed it; {lost or 'perhaps the DAG is paused'}"

    for reason, group in groupby(missing, key=why):
        yield [slice_.slice_id for slice_ in group], reason


def _of_a_request(place: _Place, slice_: Slice) -> str:
    """Return what an open request does with a slice; empty if none has it."""
    for request in reversed(place.view.awaited_requests()):
        run = place.view.run(request.runs[slice_.slice_id]) if slice_.slice_id in request.runs else None
        if run is not None and not run.is_publishable:
            return f"held since {show_instant(run.at_ms)}: {'; '.join(stop_reasons(run))}"
        if run is None and not covers(request, slice_):
            continue
        name = f"request {request.request_id} ({request.who})"
        if is_live(place.work, request):
            return f"being replayed by {name}"
        return f"staged by {name}, and nobody works on it" if run else f"{name} has stopped before it"
    return ""


def _not_there(place: _Place) -> Message | None:
    """Return the message that the data of the last slices has not arrived; its cause is the last of them."""
    state, missing = place.of_the_days_before()
    waiting = {slice_.slice_id for slice_ in state.unarrived}
    coordinates = place.work.log_state(place.view, missing).coordinates if missing else {}
    absent = [slice_ for slice_ in missing if slice_.slice_id in waiting or not coordinates[slice_.slice_id].records]
    if not absent:
        return None
    ids = tuple(slice_.slice_id for slice_ in absent)
    newest = (
        "no slice has a record"
        if state.newest_data is None
        else f"the newest record is in {state.newest_data.slice_id}"
    )
    return place.message(
        Event.NOT_THERE,
        f"{folded(ids)}: the data is not there",
        slices=ids,
        what=(
            f"In the log, {newest}:",
            *listed_lines([f"{folded(few)}: {why}" for few, why in _grouped(place, state, absent)]),
        ),
        to_do=f"Look at the job that writes the log {place.work.pipeline.log.table}",
        causes=[f"{_DATA}{ids[-1]}"],
    )


def _held_long(place: _Place, longer_ms: int) -> Iterator[Message]:
    """Yield a message for each request with slices that have been held longer; its causes are their runs."""
    limit_ms = place.work.ledger.now_ms() - longer_ms
    long = [held_slice for held_slice in held_slices(place.view) if held_slice.since_ms <= limit_ms]
    by_request: dict[str, list[HeldSlice]] = {}
    for held_slice in long:
        by_request.setdefault(held_slice.request_id, []).append(held_slice)
    for request_id, held in by_request.items():
        ids = tuple(slice_.slice_id for slice_ in held)
        yield place.message(
            Event.HELD_LONG,
            f"{folded(ids)} held for more than {human_duration(longer_ms)}",
            slices=ids,
            what=(
                "Nobody has decided on these slices:",
                *listed_lines([f"{slice_.slice_id} since {slice_.since}: {slice_.reason}" for slice_ in held]),
            ),
            to_do=what_to_do(slice_.verdict for slice_ in held),
            causes=(f"{_HELD}{request_id} {slice_.run_id}" for slice_ in held),
            url=place.url(links.request_page(place.name, request_id)),
        )


def _digest(place: _Place) -> Message:
    """Return the daily message on what was published, and what waits."""
    state, key = standing(place.work, place.view), _TIMES[Event.DIGEST]
    since_ms = place.since_ms(key)
    summary = digest(place.work, place.view, state, since_ms=since_ms, newest=place.told.newest.get(key))
    return place.message(
        Event.DIGEST,
        summary.subject,
        slices=tuple(sorted({*summary.published, *summary.restated})),
        what=(f"Since {show_instant(since_ms // 1000 * 1000)}:", *(f"  {name}: {text}" for name, text in summary.rows)),
        to_do="Nothing, unless slices are held, waiting, empty or changed",
        url=place.url(links.digest_page(place.name)),
    )
