"""The program that spark-submit runs: it replays the slices of one order (`dag_tasks.Order` as JSON)."""

import logging
import sys
from collections.abc import Sequence

from jobs.orchestration.dag_tasks import read_order, replay
from jobs.orchestration.outcomes import run_to_json
from jobs.plain_text import EscapingFormatter
from jobs.spark.child_env import clean_environment
from windowlib.errors import HindcastError

log = logging.getLogger("hindcast")


def main(arguments: Sequence[str]) -> int:
    """Replay the order in `arguments[0]`; return the exit status.

    0: every slice is staged, with any verdict. 1: the replay failed, and the log has one paragraph on it. 2: wrong
    number of arguments.
    """
    clean_environment()
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(EscapingFormatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for noisy in ("py4j", "great_expectations"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    if len(arguments) != 1:
        log.error("expected one argument, the order as JSON; found %d arguments", len(arguments))
        return 2
    try:
        done = replay(read_order(arguments[0]))
    except HindcastError as error:
        log.error("%s", error)  # noqa: TRY400 - an expected error is one paragraph without a traceback
        return 1
    for run in map(run_to_json, done):
        log.info("staged %s run=%s verdict=%s counts=%s", run["slice_id"], run["run_id"], run["verdict"], run["counts"])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
