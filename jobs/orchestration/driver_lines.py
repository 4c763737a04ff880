"""Reads the output of a Spark driver line by line: the lines of a replay, those of Spark, and those without a use."""

import logging
import re
from typing import Final, NamedTuple

OURS: Final = "hindcast"
"""The first word of each line that `jobs.orchestration.replay_job` logs."""

_OURS: Final = re.compile(rf"{OURS} (DEBUG|INFO|WARNING|ERROR|CRITICAL) (.*)", re.DOTALL)
_SPARKS: Final = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d (TRACE|DEBUG|INFO|WARN|ERROR|FATAL) (.*)", re.DOTALL)
_LEVELS: Final = {
    "DEBUG": logging.DEBUG, "INFO": logging.INFO, "WARNING": logging.WARNING, "ERROR": logging.ERROR,
    "CRITICAL": logging.ERROR, "TRACE": logging.DEBUG, "WARN": logging.WARNING, "FATAL": logging.ERROR,
}  # fmt: skip
_USELESS: Final = (
    "Spark-Submit cmd:",  # 3,000 letters of jars
    "WARNING: Using incubator modules",
    "WARNING: A Java agent",
    "WARNING: package sun.",
    "Using Spark's",
    "Setting Spark log level",
    "Setting default log level",
    "To adjust logging level",
    "Utils: Your hostname",
    "Utils: Set SPARK_LOCAL_IP",
    "NativeCodeLoader:",
)
"""How lines begin that the JVM, spark-submit and Spark write at every start, whatever the user configures."""


class DriverLine(NamedTuple):
    """One line of a driver for the log of the task. `is_ours`: the replay logged it."""

    level: int
    text: str
    is_ours: bool


def read_line(line: str) -> DriverLine | None:
    """Return a line without its time; None if no reader of the task's log can act on it."""
    ours = _OURS.fullmatch(line)
    if ours is not None:
        return DriverLine(_LEVELS[ours[1]], ours[2], is_ours=True)
    sparks = _SPARKS.fullmatch(line)
    level, text = (_LEVELS[sparks[1]], sparks[2]) if sparks is not None else (logging.INFO, line)
    is_useless = not text.strip() or text.startswith(_USELESS) or (sparks is not None and level <= logging.INFO)
    return None if is_useless else DriverLine(level, text, is_ours=False)
