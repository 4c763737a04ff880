"""What goes wrong inside a user's function, in the driver or in a Spark worker: one paragraph that names the line."""

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import windowlib.errors
from jobs.engine.user_functions import Functions
from jobs.pipeline.models.pipeline import Pipeline
from jobs.plain_text import shortened
from windowlib.errors import HindcastError, RequestError, SpecError

_MAX_SAID = 500
_FRAME = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+), in (?P<name>.+)$', re.MULTILINE)
_WORKER_TRACE = "Traceback (most recent call last):"
# A worker that is gone: what the JVM reads next is the end of the stream, or it has seen the process end.
_WORKER_GONE = ("Python worker exited unexpectedly", "java.io.EOFException")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Raised:
    """An exception as its traceback shows it: the calls, each (file, line, function), the class, the message."""

    calls: tuple[tuple[str, int, str], ...]
    kind: str
    said: str


@contextmanager
def explained(pipeline: Pipeline) -> Iterator[None]:
    """Turn what users' functions raise within the body into an error that names their file and line.

    `sys.exit` counts as raising: a function may not end the program, and Spark's workers report it like an error.

    Raises:
        SpecError: a function raised; or windowlib refused what it returned, in a worker.
        RequestError: a worker ended without a word while there are functions that may have ended it.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        found = None if isinstance(error, HindcastError) else _explanation(error, pipeline)
        if found is None:
            raise
        raise found from error


def _explanation(error: BaseException, pipeline: Pipeline) -> HindcastError | None:
    raised = _in_worker(str(error)) or _in_driver(error)
    ours = getattr(windowlib.errors, raised.kind.removeprefix("windowlib.errors."), None)
    if raised.kind.startswith("windowlib.errors.") and isinstance(ours, type) and issubclass(ours, HindcastError):
        return ours(raised.said)
    if not pipeline.functions():
        return None
    files = Functions(source=pipeline.source, directory=pipeline.functions_dir).files(pipeline.functions())
    theirs = [call for call in raised.calls if Path(call[0]) in files]
    if theirs:
        file, line, name = theirs[-1]
        what = "called sys.exit" if raised.kind == "SystemExit" else f"raised {raised.kind.rpartition('.')[2]}"
        said = f": {shortened(raised.said, _MAX_SAID)}" if raised.said else ""
        return SpecError(
            f"{pipeline.source}: a function of yours {what}{said} ({file}, line {line}, in {name}). Mend it and run "
            "again; nothing of this replay is visible"
        )
    if any(sign in str(error) for sign in _WORKER_GONE):
        names = ", ".join(one.name for one in pipeline.functions())
        return RequestError(
            f"{pipeline.source}: a Python worker of Spark ended without an error. Either a function of yours ended its "
            f"process (os._exit, or a crash in a compiled library; the functions are {names}), or the machine has too "
            "little memory. Look into the system's log, then run again; nothing of this replay is visible"
        )
    return None


def _in_worker(text: str) -> _Raised | None:
    """The last exception of a traceback that Spark passes on as text."""
    calls = list(_FRAME.finditer(text))
    if _WORKER_TRACE not in text or not calls:
        return None
    after = text[calls[-1].end() :].lstrip("\n").split("\n")
    # Source lines and markers below a call are indented; the exception is not.
    first = next((place for place, line in enumerate(after) if line and not line.startswith(" ")), None)
    if first is None:
        return None
    kind, _, said = "\n".join(after[first:]).strip().partition(": ")
    found = tuple((call["file"], int(call["line"]), call["name"]) for call in calls)
    return _Raised(calls=found, kind=kind, said=said)


def _in_driver(error: BaseException) -> _Raised:
    frames = traceback.extract_tb(error.__traceback__)
    found = tuple((frame.filename, frame.lineno or 0, frame.name) for frame in frames)
    kind = type(error)
    return _Raised(
        calls=found, kind=f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins."), said=str(error)
    )
