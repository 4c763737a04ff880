"""Plays Apache Beam's own trigger transcripts through the window operator.

They are read from the installed wheel; nothing is copied. Beam's driver treats the records of an `input` line as one
bundle and calls the trigger once per bundle. Here the trigger is called for each record, as in a log. The results of
the transcripts are the same either way.
"""

from importlib.metadata import PackageNotFoundError

import pytest

from tests.support.beam_transcripts import Player, Transcript, TranscriptFailed, transcripts

try:
    ALL = list(transcripts())
except PackageNotFoundError:  # only outside the project's environment: requirements.lock has apache-beam
    pytest.skip("apache-beam is not installed", allow_module_level=True)

BEHAVIOURS = [transcript for transcript in ALL if "error" not in transcript]
REJECTED = [transcript for transcript in ALL if "error" in transcript]


def test_the_file_has_the_expected_number_of_transcripts() -> None:
    assert (len(BEHAVIOURS), len(REJECTED)) == (13, 5)


@pytest.mark.parametrize("transcript", BEHAVIOURS, ids=[f"{n}-{one['name']}" for n, one in enumerate(BEHAVIOURS)])
def test_the_operator_gives_the_outputs_of_the_transcript(transcript: Transcript) -> None:
    Player(transcript).play()


@pytest.mark.parametrize("transcript", REJECTED, ids=[one["name"] for one in REJECTED])
def test_a_wrong_transcript_is_rejected(transcript: Transcript) -> None:
    with pytest.raises(TranscriptFailed, match=transcript["error"]):
        Player(transcript).play()


def test_every_attribute_of_a_pane_is_compared() -> None:
    """A transcript fails if any one attribute of its expectation is changed."""
    transcript = next(one for one in BEHAVIOURS if one["name"] == "early_late_sessions")
    wrong = {"window": [1, 12], "values": [1], "timestamp": 1, "index": 7, "nonspeculative_index": 7}
    *before, last = transcript["transcript"]
    for name, value in {**wrong, "final": True}.items():
        changed = {"expect": [{**last["expect"][0], name: value}]}
        with pytest.raises(TranscriptFailed, match="Unmatched output"):
            Player({**transcript, "transcript": [*before, changed]}).play()
