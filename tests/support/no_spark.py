"""For tests of what this process does alone."""

from typing import NoReturn

from jobs.spark.lazy_session import LazySession


def no_session(*_arguments: object) -> NoReturn:
    """Fail, in the place of Spark's start."""
    raise AssertionError("a small chunk started a session")


def threads(cores: int = 2) -> LazySession:
    """Return a session that must not start. The tasks of chunks run in so many threads."""
    return LazySession(no_session, is_local=True, cores=cores)
