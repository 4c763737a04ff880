"""Apache Beam's own trigger transcripts: what must pass passes, what must be rejected is rejected.

They come from the installed wheel, nothing is copied. Beam's driver takes the records of an `input` line as one
bundle and asks the trigger once per bundle; here each record is asked about, as in a log. The transcripts do not tell
the two apart.
"""

from importlib.metadata import PackageNotFoundError

import pytest

from tests.support.beam_transcripts import Player, Transcript, TranscriptFailed, transcripts

try:
    ALL = list(transcripts())
except PackageNotFoundError:  # it is in requirements.lock, so this happens outside the project's environment only
    pytest.skip("apache-beam is not installed", allow_module_level=True)

BEHAVIOURS = [one for one in ALL if "error" not in one]
REJECTED = [one for one in ALL if "error" in one]


def test_the_file_is_the_one_that_we_know() -> None:
    assert (len(BEHAVIOURS), len(REJECTED)) == (13, 5)


@pytest.mark.parametrize("transcript", BEHAVIOURS, ids=[f"{n}-{one['name']}" for n, one in enumerate(BEHAVIOURS)])
def test_the_operator_does_what_the_transcript_says(transcript: Transcript) -> None:
    Player(transcript).play()


@pytest.mark.parametrize("transcript", REJECTED, ids=[one["name"] for one in REJECTED])
def test_a_wrong_transcript_is_rejected(transcript: Transcript) -> None:
    with pytest.raises(TranscriptFailed, match=transcript["error"]):
        Player(transcript).play()


def test_every_attribute_of_a_pane_is_compared() -> None:
    """A changed expectation fails, whichever attribute it is."""
    transcript = next(one for one in BEHAVIOURS if one["name"] == "early_late_sessions")
    wrong = {"window": [1, 12], "values": [1], "timestamp": 1, "index": 7, "nonspeculative_index": 7}
    *before, last = transcript["transcript"]
    for name, value in {**wrong, "final": True}.items():
        changed = {"expect": [{**last["expect"][0], name: value}]}
        with pytest.raises(TranscriptFailed, match="Unmatched output"):
            Player({**transcript, "transcript": [*before, changed]}).play()
