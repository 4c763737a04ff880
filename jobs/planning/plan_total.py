"""How much a plan replays, in words: the same ones on the command line, in logs and on pages."""

from jobs.durations import human_duration
from jobs.plain_text import counted
from jobs.planning.estimate import Estimate
from jobs.planning.plan import Plan


def share_to_replay(planned: Plan) -> str:
    """Return `2 of 5 slices to replay`, or `1 of 5 slices to replay for certain, and at most 2 more`.

    The slices of a warm-up are not among them.
    """
    certain, most = (sum(not step.is_warm_up for step in steps) for steps in (planned.certain, planned.at_most))
    share = f"{certain:,} of {counted(len(planned.range), 'slice')} to replay"
    if most > certain:
        share += f" for certain, and at most {most - certain:,} more"
    warm_up = sum(step.is_warm_up for step in planned.stale)
    return f"{share}, after a warm-up of {warm_up:,}" if warm_up else share


def to_read(planned: Plan) -> str:
    """Return how many records a plan reads, and how long it takes: `9 records, about 4 s according to past runs`.

    If it is not certain that all slices are replayed, both are ranges.
    """
    least, most = (sum(step.records for step in steps) for steps in (planned.certain, planned.at_most))
    records = counted(most, "record") if least == most else f"{least:,} to {counted(most, 'record')}"
    return records + _expected(planned)


def _expected(planned: Plan) -> str:
    certain, most = (Estimate.together(step.expected for step in steps) for steps in (planned.certain, planned.at_most))
    if most is None:
        return ""
    if certain is not None and certain != most:
        about = f"{_shown(certain.seconds)} to {_shown(most.seconds)}"
    else:
        low, high = _shown(most.least), _shown(most.most)
        about = _shown(most.seconds) + (f" ({low} to {high})" if low != high else "")
    return f", about {about} according to past runs"


def _shown(seconds: float) -> str:
    return human_duration(seconds * 1_000)
