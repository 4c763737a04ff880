"""Turns errors about a damaged table, an own one or an event log, into one paragraph that names it and the file."""

import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

from jobs.disk_errors import disk_problem
from jobs.lake.delta_tables import open_delta
from jobs.lake.json_lines import json_lines
from jobs.lake.parquet_files import open_parquet
from jobs.storage import file_system, is_remote
from windowlib.errors import HindcastError, LogError, StoreError
from windowlib.libraries import pa

ADVICE = (
    "`hindcast verify PIPELINE` lists everything that is damaged, and `hindcast mend PIPELINE SLICE` makes rows of a "
    "slice again. Other files need a copy to restore them from"
)
_IN_STORE = (
    "Check that the object store answers and that the variables of docs/how-to/storage.md name it, and run the command "
    "again"
)
REMOTE_ADVICE = f"{_IN_STORE}. If an object is damaged or lost, put it back from a copy"

_FEATURE_ADVICE = (
    "The library that reads the table here refuses the features of the table. Drop the feature (ALTER TABLE … DROP "
    "FEATURE; REORG TABLE … APPLY (PURGE) removes deletion vectors), or append the records to a new table without it"
)
_FEATURE = re.compile(r"[Tt]able features required|\bUnsupported: |catalog-managed table")
"""How deltalake tells that it cannot read a table with a feature or a version of the protocol."""
_MAX_CAUSE = 300
_ANSWER = re.compile(
    r"(?:<\?xml[^>]*>\s*)?<Error>.*?<Code>(.*?)</Code>(?:\s*<Message>(.*?)</Message>)?.*?(?:</Error>|$)", re.DOTALL
)
"""The answer of a store that refuses a request. It may repeat headers of the request, such as the session token."""


@contextmanager
def table_errors(
    make_error: Callable[[BaseException], HindcastError], *, also: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Turn an error of deltalake, Arrow or the file system into the error that `make_error` returns.

    `also` are further classes that the body raises for a damaged table. A `HindcastError` passes unchanged.
    """
    from deltalake.exceptions import DeltaError

    try:
        yield
    except HindcastError:
        raise
    except BaseException as error:
        if type(error).__name__ == "PanicException":  # of Rust: no `Exception`, and no library exports the class
            raise make_error(error) from None  # its traceback is a backtrace of Rust
        if not isinstance(error, (DeltaError, OSError, pa.ArrowException, UnicodeDecodeError, *also)):
            raise
        raise make_error(error) from error


@contextmanager
def log_errors(uri: str, doing: str) -> Iterator[None]:
    """Turn the exceptions of deltalake and Arrow about a damaged table into a `LogError` of one paragraph.

    If the disk fails, or this user may not read the table, the message tells that instead. `doing` is the step that can
    fail, such as "reading its schema".
    Raises LogError: names the table, the step and the cause.
    """

    def make_error(error: BaseException) -> LogError:
        # The text of a panic carries a backtrace of Rust: only its first line is shown.
        cause = str(error).partition("\n")[0].strip()[:_MAX_CAUSE]
        problem = disk_problem(error)
        if problem is not None:
            return LogError(f"event log {uri}: {doing} failed: {problem} ({one_line(error)[:_MAX_CAUSE]})")
        if _FEATURE.search(cause):
            return LogError(f"event log {uri}: {doing} failed: {cause}. {_FEATURE_ADVICE}")
        if is_remote(uri):
            return LogError(f"event log {uri}: {doing} failed: {one_line(error)}. {REMOTE_ADVICE}")
        return LogError(
            f"event log {uri}: {doing} failed: {cause or type(error).__name__}. A file of the table is damaged or "
            "truncated. Restore it from a backup. If it is a damaged checkpoint of Delta and all commit files still "
            "exist, you can remove the checkpoint instead"
        )

    with table_errors(make_error, also=(ValueError,)):
        yield


@contextmanager
def reading(uri: str, attempts: Collection[tuple[str, str]] = ()) -> Iterator[None]:
    """Turn the errors of reading a damaged table of ours into a `StoreError`.

    The files of `attempts`, pairs of (slice_id, attempt_id), are searched for damage before the other files.
    Raises StoreError: names the table and, where it can be told, the file.
    """
    with table_errors(lambda error: unreadable(uri, error, attempts)):
        yield


def refuse_outage(uri: str, error: HindcastError) -> None:
    """Return if the object store of a place answers, so that an error of reading it tells of damage.

    Raises StoreError: the store does not answer, so the error tells nothing of what is stored.
    """
    if not is_remote(uri):
        return
    system, place = file_system(uri)
    try:
        system.get_file_info(place)
    except OSError as outage:
        raise StoreError(f"{error} The store does not answer now: {one_line(outage)}") from error


def unreadable(uri: str, error: BaseException, attempts: Collection[tuple[str, str]] = ()) -> StoreError:
    """Return a `StoreError` that names the table and, if one is found, the damaged file. `attempts` as in `reading`.

    If the disk is full or fails, the message tells that instead.
    """
    problem = disk_problem(error)
    if problem is not None:
        return StoreError(f"table {uri}: {problem} ({one_line(error)})")
    damaged = damaged_file(uri, attempts)
    if damaged is None:
        advice = f"{_IN_STORE}. {ADVICE}" if is_remote(uri) else ADVICE
        return StoreError(f"table {uri} cannot be read: {one_line(error)}. {advice}")
    path, why = damaged
    return StoreError(f"table {uri} cannot be read: file {path} is damaged, truncated or lost ({why}). {ADVICE}")


def one_line(error: BaseException) -> str:
    """Return the message of a library's exception in one line, without colour codes and numbered frames.

    Of the answer of a store, it has the code and the message only.
    """
    text = re.sub(r"\x1b\[[0-9;]*m|↳|\n\s*\d+: [^\n]*", "", _ANSWER.sub(r"\1: \2", str(error)))
    return " ".join(re.sub(r"note: run with `RUST_BACKTRACE[^\n]*", "", text).split()) or type(error).__name__


def damaged_file(uri: str, attempts: Collection[tuple[str, str]] = ()) -> tuple[str, str] | None:
    """Return the first damaged file of a local table and the reason.

    The log's files are tried first, then the data files of `attempts`, then the other data files. None: every file can
    be read, or the table is not local.
    """
    if is_remote(uri):
        return None
    for path in sorted(Path(uri, "_delta_log").glob("*")):
        why = _log_problem(path)
        if why is not None:
            return str(path), why
    own = {(f"slice_id={slice_id}", f"attempt_id={attempt_id}") for slice_id, attempt_id in attempts}
    for path in sorted(data_files(uri), key=lambda file: _directories(file) not in own):
        why = data_problem(path)
        if why is not None:
            return str(path), why
    return None


def _directories(file: Path) -> tuple[str, str]:
    """Return the names of the two directories of a data file: those of its slice and attempt."""
    return unquote(file.parent.parent.name), unquote(file.parent.name)


def data_files(uri: str) -> list[Path]:
    """Return the data files of a local table's newest version; an empty list if its log cannot be read."""
    from deltalake.exceptions import DeltaError

    if is_remote(uri):
        return []
    try:
        uris = open_delta(uri).file_uris()
    except (DeltaError, OSError):
        return []
    return [Path(file_uri.removeprefix("file://")) for file_uri in uris]


def data_problem(path: Path) -> str | None:
    """Return the reason why a Parquet file cannot be read; None if it can."""
    try:
        open_parquet(path).read().validate(full=True)
    except FileNotFoundError:
        return "it does not exist"
    except (OSError, pa.ArrowException, ValueError) as error:
        return one_line(error)
    return None


def _log_problem(path: Path) -> str | None:
    if path.suffix == ".parquet":
        return data_problem(path)
    if path.suffix != ".json":
        return None
    try:
        actions = json_lines(path.read_bytes())
    except (OSError, ValueError) as error:
        return one_line(error)
    return None if all(isinstance(action, dict) for action in actions) and actions else "it has no action"
