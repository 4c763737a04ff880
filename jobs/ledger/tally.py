"""Counts runs by their state in the eyes of a reader: a failed run that a person has waived is waived, not failed."""

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import assert_never

from jobs.ledger.view import StagedRun
from jobs.runs import Verdict


class Standing(Enum):
    """What became of the checks of a run. The values are the words that commands print."""

    PASSED = "passed"
    WARNED = "warned"
    WAIVED = "waived"
    FAILED = "failed"
    BROKEN = "with an error"


def standing_of(run: StagedRun) -> Standing:
    """Return the standing of a run. An error cannot be waived."""
    match run.verdict:
        case Verdict.PASS:
            return Standing.PASSED
        case Verdict.WARN:
            return Standing.WARNED
        case Verdict.FAIL:
            return Standing.FAILED if run.waiver is None else Standing.WAIVED
        case Verdict.ERROR:
            return Standing.BROKEN
        case _:
            assert_never(run.verdict)


def tally(standings: Iterable[Standing]) -> dict[str, int]:
    """Return the number of runs of each standing that occurs, by its word, from the best standing to the worst."""
    counted = Counter(standings)
    return {standing.value: counted[standing] for standing in Standing if counted[standing]}


def in_words(counted: Mapping[str, int]) -> str:
    """Return a tally as text: `9 passed, 2 waived`. Empty without runs."""
    return ", ".join(f"{count:,} {word}" for word, count in counted.items())
