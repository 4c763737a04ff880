"""What commands read of all runs of a ledger, and how a snapshot stores it: columns, which are decoded at once."""

from collections.abc import Mapping
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from jobs.ledger.plain_codec import Codec
from jobs.ledger.tally import Standing, standing_of
from jobs.ledger.view import StagedRun


class RunBrief(NamedTuple):
    """The few facts of a run that commands read of all runs.

    `standing` is None for a run without an attempt that counts; `is_gone` tells that a clean-up has removed its rows.
    `sightings` are (table id, since, sound, log digests) of each sighting of the run.
    """

    slice_id: str
    seq: int
    standing: Standing | None
    is_gone: bool
    records: int
    sightings: tuple[tuple[str, int, int, str], ...]

    @classmethod
    def of(cls, run: StagedRun) -> "RunBrief":
        """Return the facts of a run that counts."""
        logs = (sighting.log for sighting in run.sightings)
        return cls(
            slice_id=run.result.slice.slice_id,
            seq=run.seq,
            standing=standing_of(run),
            is_gone=False,
            records=run.result.counts.read,
            sightings=tuple((log.table_id, log.since, log.sound, log.log_digests) for log in logs),
        )


class RunSlot:
    """What was made of the events of a run. `RunsProjection` fills it. After another event it has another slot."""

    __slots__ = ("brief", "run")

    def __init__(self, brief: RunBrief | None = None) -> None:
        self.brief = brief
        self.run: StagedRun | None = None


_STANDINGS: Mapping[str | None, Standing | None] = {None: None, **{standing.value: standing for standing in Standing}}
_new_brief = partial(tuple.__new__, RunBrief)


def _encoded_slots(slots: Mapping[str, RunSlot]) -> list[list[Any]]:
    """Return the columns of the briefs, and then those of their sightings: many runs are decoded at once."""
    briefs = [slot.brief for slot in slots.values() if slot.brief is not None]
    assert len(briefs) == len(slots), "`settle` fills the slots before they are stored"
    return [
        [*slots],
        [brief.slice_id for brief in briefs],
        [brief.seq for brief in briefs],
        [brief.standing and brief.standing.value for brief in briefs],
        [brief.is_gone for brief in briefs],
        [brief.records for brief in briefs],
        [len(brief.sightings) for brief in briefs],
        *([sighting[place] for brief in briefs for sighting in brief.sightings] for place in range(4)),
    ]


def _decoded_slots(plain: list[list[Any]]) -> dict[str, RunSlot]:
    run_ids, slice_ids, seqs, standings, gone, records, counts, *columns = plain
    sightings = zip(*columns, strict=True)
    own = (tuple(islice(sightings, count)) for count in counts)
    fields = slice_ids, seqs, map(_STANDINGS.__getitem__, standings), gone, records, own
    briefs = map(_new_brief, zip(*fields, strict=True))
    return dict(zip(run_ids, map(RunSlot, briefs), strict=True))


SLOTS_CODEC = Codec(_encoded_slots, _decoded_slots)
"""The codec of `RunsProjection.slots`."""
