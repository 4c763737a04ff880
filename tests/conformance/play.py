"""`python -m tests.conformance.play`: plays recorded scripts of the real engines.

It reads one JSON script per line from standard input and writes one JSON answer per line to standard output, in the
same order. It runs windowlib's public classes in the profile of the script's engine, so that the recorded answers check
the code that replays run.
"""

import json
import sys
from collections.abc import Mapping
from typing import Any

from tests.conformance import acker_player, flink_player, storm_player


def play(script: Mapping[str, Any]) -> dict[str, Any]:
    """Play one script and return its answer. Scripts with `window` or `acker` are Storm's, all others Flink's.

    Raises:
        SpecError: the script has an unknown mode or event.
    """
    if "window" in script:
        return storm_player.play(script)
    if "acker" in script:
        return acker_player.play(script)
    return flink_player.play(script)


def main() -> None:
    """Write one answer for each line of standard input."""
    for line in sys.stdin:
        if line.strip():
            sys.stdout.write(json.dumps(play(json.loads(line))) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
