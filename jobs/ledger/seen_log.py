"""What the runs of a ledger have seen of the event log, for the next reader of it."""

from collections.abc import Sequence

from jobs.lake.known_log import KnownLog
from jobs.ledger.acceptances import by_table
from jobs.ledger.view import LedgerView
from jobs.runs import LogCoordinates, Slice


def known_log(view: LedgerView, slices: Sequence[Slice]) -> KnownLog:
    """Return what the runs of a ledger have seen of the log.

    These are sound versions, digests of the files of `_delta_log`, the coordinates of the given slices, and the commits
    that persons have accepted.
    """
    sound: dict[str, int] = {}
    log_digests: dict[str, list[str]] = {}
    read: dict[str, set[tuple[int, int]]] = {}
    seen: dict[str, list[LogCoordinates]] = {slice_.slice_id: [] for slice_ in slices}
    for run in view.runs.values():
        own = seen.get(run.result.slice.slice_id)
        for sighting in run.sightings:
            table_id = sighting.log.table_id
            sound[table_id] = max(sighting.log.sound, sound.get(table_id, -1))
            read.setdefault(table_id, set()).add((sighting.log.since, sighting.log.sound))
            if sighting.log.log_digests:
                log_digests.setdefault(table_id, []).append(sighting.log.log_digests)
            if own is not None:
                own.append(sighting.log)
    return KnownLog(
        sound=sound,
        read={table_id: frozenset(spans) for table_id, spans in read.items()},
        seen=seen,
        log_digests=log_digests,
        accepted=by_table(view.accepted),
    )
