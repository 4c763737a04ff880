"""`python -m windowlib.testkit.conformance`: play recorded scripts of the real engines, one JSON script per line.

Reads scripts from standard input, writes one JSON answer per line to standard output, in the same order, through the
public pieces of windowlib in the profile of the engine that the script comes from. There is no second implementation.
"""

import json
import sys
from collections.abc import Mapping
from typing import Any

from windowlib.storm import conformance as storm_conformance
from windowlib.storm.acker import conformance as acker_conformance
from windowlib.testkit import flink_conformance


def play(script: Mapping[str, Any]) -> dict[str, Any]:
    """Play one script and return the answer: `window` and `acker` are Storm's, all others Flink's.

    Raises:
        SpecError: a mode or event that does not exist.
    """
    if "window" in script:
        return storm_conformance.play(script)
    if "acker" in script:
        return acker_conformance.play(script)
    return flink_conformance.play(script)


def main() -> None:
    """Answer every line of standard input."""
    for line in sys.stdin:
        if line.strip():
            sys.stdout.write(json.dumps(play(json.loads(line))) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
