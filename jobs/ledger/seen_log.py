"""What the runs of a ledger have seen of the event log, for the next reader of it."""

from collections.abc import Sequence

from jobs.lake.known_log import KnownLog, SeenCommit
from jobs.ledger.acceptances import by_table
from jobs.ledger.run_projection import briefs_of
from jobs.ledger.view import LedgerView
from jobs.runs import LogCoordinates, Slice


def known_log(view: LedgerView, slices: Sequence[Slice]) -> KnownLog:
    """Return what the runs of a ledger have seen of the log.

    These are sound versions, digests of the files of `_delta_log`, the coordinates of the given slices, the commits
    that persons have accepted, and the newest commit of a look.
    """
    sound: dict[str, int] = {}
    log_digests: dict[str, list[str]] = {}
    read: dict[str, set[tuple[int, int]]] = {}
    seen: dict[str, list[LogCoordinates]] = {slice_.slice_id: [] for slice_ in slices}
    for run_id, brief in briefs_of(view).items():
        for table_id, since, version, digests in brief.sightings:
            sound[table_id] = max(version, sound.get(table_id, -1))
            read.setdefault(table_id, set()).add((since, version))
            if digests:
                log_digests.setdefault(table_id, []).append(digests)
        if brief.slice_id in seen:
            seen[brief.slice_id] += (sighting.log for sighting in view.runs[run_id].sightings)
    look = view.look
    return KnownLog(
        sound=sound,
        read={table_id: frozenset(spans) for table_id, spans in read.items()},
        seen=seen,
        log_digests=log_digests,
        accepted=by_table(view.accepted),
        commits=frozenset(() if look is None else (SeenCommit(look.table_id, look.version, look.commit),)),
    )
