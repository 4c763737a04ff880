"""Entry point for spark-submit: replays the slices of one order, which `dag_tasks.plan` wrote as JSON."""

import logging
import sys
from collections.abc import Sequence

from jobs.orchestration.dag_tasks import read_order, replay
from jobs.plain_text import EscapingFormatter
from jobs.spark.child_env import clean_environment
from windowlib.errors import HindcastError

log = logging.getLogger("hindcast")


def main(arguments: Sequence[str]) -> int:
    """Replay; 0 when every slice is staged, whatever its checks say, 1 with one paragraph when it could not be."""
    clean_environment()
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(EscapingFormatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for noisy in ("py4j", "great_expectations"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    if len(arguments) != 1:
        log.error("expected one argument, the order as JSON; found %d", len(arguments))
        return 2
    try:
        done = replay(read_order(arguments[0]))
    except HindcastError as error:
        log.error("%s", error)  # noqa: TRY400 - an error of ours is a paragraph, not a traceback
        return 1
    for run in done["runs"]:
        log.info("staged %s run=%s verdict=%s counts=%s", run["slice_id"], run["run_id"], run["verdict"], run["counts"])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
