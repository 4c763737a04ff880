"""The program that spark-submit runs: it replays the slices of one order, a file with a `dag_orders.Order` as JSON."""

import logging
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from jobs.orchestration.dag_orders import read_order
from jobs.orchestration.dag_tasks import replay
from jobs.orchestration.driver_lines import OURS
from jobs.orchestration.replay_progress import ProgressLog
from jobs.plain_text import EscapingFormatter, counted
from jobs.spark.child_env import clean_environment
from windowlib.errors import HindcastError

log = logging.getLogger("hindcast")


def main(arguments: Sequence[str]) -> int:
    """Replay the order in the file `arguments[0]`; return the exit status.

    0: every slice is staged, with any verdict. 1: the replay failed, and the log has one paragraph on it. 2: wrong
    number of arguments.
    """
    clean_environment()
    _log_to_stdout()
    if len(arguments) != 1:
        log.error("expected one argument, the file of the order; found %d arguments", len(arguments))
        return 2
    try:
        order = read_order(Path(arguments[0]).read_text(encoding="utf-8"))
        with ProgressLog() as progress:
            done = replay(order, on_progress=progress)
    except HindcastError as error:
        log.error("%s", error)  # noqa: TRY400 - an expected error is one paragraph without a traceback
        return 1
    log.info("%s staged; the gate decides on the publication", counted(len(done), "slice"))
    return 0


def _log_to_stdout() -> None:
    """Log to stdout without times, because Airflow adds the time to each line. Leave out what no reader can act on."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(EscapingFormatter(f"{OURS} %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for noisy in ("py4j", "great_expectations", "jobs.replay"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    warnings.simplefilter("ignore")  # pandas, PySpark and Great Expectations warn of each other's versions


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
