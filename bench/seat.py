"""One contestant in a process of its own: `python -m bench.seat NAME`.

It answers each line of JSON on its standard input by one line of JSON. Everything else that the process prints goes to
its standard error, because a JVM shares the standard output of the process that starts it.
"""

import gc
import json
import os
import sys
import time
import traceback
from dataclasses import asdict
from typing import Any, TextIO

from bench.contestant import CannotTakePart, Contestant, Job, contestant


def serve(name: str, questions: TextIO, answers: TextIO) -> None:
    """Answer questions until the standard input ends."""
    found: Contestant | None = None
    for line in questions:
        question = json.loads(line)
        try:
            found = found or contestant(name)
            reply = answer(found, question)
        except CannotTakePart as error:
            reply = {"missing": str(error)}
        except Exception as error:  # noqa: BLE001 - the bench shows whatever went wrong
            reply = {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
        answers.write(json.dumps(reply) + "\n")
        answers.flush()


def answer(found: Contestant, question: dict[str, Any]) -> dict[str, Any]:
    """Do what one question asks."""
    match question["do"]:
        case "prepare":
            found.prepare(Job.from_json(question["job"]))
            gc.collect()
            return {}
        case "run":
            began = time.perf_counter()
            found.run()
            return {"wall_s": time.perf_counter() - began}
        case "check":
            return {"checksum": asdict(found.check()), "notes": dict(found.notes())}
        case other:
            raise ValueError(f"a seat is asked to prepare, run or check, not {other!r}")


def main() -> None:
    """Keep the standard output for answers, and serve."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        serve(sys.argv[1], sys.stdin, answers)


if __name__ == "__main__":
    main()
