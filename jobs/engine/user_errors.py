"""Explains errors of users' functions, in the driver or in a Spark worker: one paragraph with file and line.

The errors of a worker or of a JVM that has ended, and of the disk on which it wrote, are explained as well. Spark
reports an exception of a Python worker only as text. So this module reads the traceback and the exception's class from
that text, and recognises a dead worker by phrases of Spark and of the JVM.
"""

import os
import platform
import re
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import windowlib.errors
from jobs.disk_errors import disk_problem_in
from jobs.engine.user_functions import Functions
from jobs.pipeline.models.pipeline import Pipeline
from jobs.plain_text import shortened
from windowlib.errors import HindcastError, RequestError, SpecError, StoreError

_MAX_MESSAGE = 500
_FRAME = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+), in (?P<name>.+)$', re.MULTILINE)
_NO_MODULE = re.compile(r"No module named '(?P<name>[^'.]+)[^']*'")
_WORKER_TRACE = "Traceback (most recent call last):"
_JVM_TRACE = re.compile(r"\n(?: SQLSTATE: |\tat )")
"""What Spark's JVM adds to the exception of a worker: a code, and where it was in Java."""
# A dead worker: the JVM saw its process end, or reached the end of its output stream.
_WORKER_GONE = ("Python worker exited unexpectedly", "java.io.EOFException")
_JVM_GONE = "py4j.protocol.Py4JNetworkError"
_OF_SPARK = ("py4j.", "pyspark.")
_NOT_STARTED = re.compile(
    r'Cannot run program "(?P<program>[^"]+)".*?error=(?:2|8|13|20), (?P<why>[^\n]+)'
    r"|occurred while reading the port number from \S*worker_daemon"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Raised:
    """An exception: its traceback as (file, line, function) from outermost to innermost, its class, its message."""

    calls: tuple[tuple[str, int, str], ...]
    kind: str
    message: str


@contextmanager
def explained(pipeline: Pipeline) -> Iterator[None]:
    """Replace an exception that a user's function raises within the body by an error that names its file and line.

    The end of a worker or of Spark's JVM, and an error of a disk that Spark reports, are replaced by errors, too.

    A call of `sys.exit` counts as an exception. A function must not end the program, and Spark's workers report
    `sys.exit` like an error.

    Raises:
        SpecError: a function raised, or windowlib refused its result. The message begins with the pipeline file.
        RequestError: a worker, or Spark's JVM, ended without an error.
        StoreError: a disk on which Spark writes is full, over its quota, read-only or broken.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        explanation = error if isinstance(error, HindcastError) else _explanation(error, pipeline)
        if type(explanation) is SpecError and not str(explanation).startswith(f"{pipeline.source}: "):
            explanation = SpecError(f"{pipeline.source}: {explanation}")  # windowlib does not have the file's name
        if explanation is None or explanation is error:
            raise
        raise explanation from error


def _explanation(error: BaseException, pipeline: Pipeline) -> HindcastError | None:
    raised = _in_worker(str(error)) or _in_driver(error)
    ours = getattr(windowlib.errors, raised.kind.removeprefix("windowlib.errors."), None)
    if raised.kind.startswith("windowlib.errors.") and isinstance(ours, type) and issubclass(ours, HindcastError):
        return ours(raised.message)
    functions = pipeline.functions()
    files = Functions(source=pipeline.source, directory=pipeline.functions_dir).files(functions) if functions else ()
    theirs = [call for call in raised.calls if Path(call[0]) in files]
    if theirs:
        file, line, name = theirs[-1]
        what = "called sys.exit" if raised.kind == "SystemExit" else f"raised {raised.kind.rpartition('.')[2]}"
        message = f": {shortened(raised.message, _MAX_MESSAGE)}" if raised.message else ""
        return SpecError(
            f"{pipeline.source}: a function of yours {what}{message} ({file}, line {line}, in {name}). Correct it and "
            "run again; readers see nothing of this replay"
        )
    return _unsent(raised, pipeline, files) or _of_spark(str(error), pipeline, kind=_kind(error))


def _unsent(raised: _Raised, pipeline: Pipeline, files: Iterable[Path]) -> SpecError | None:
    """Return the error of a user's module that cannot be sent to Spark's workers; None for any other error."""
    missing = _NO_MODULE.fullmatch(raised.message) if raised.kind == "ModuleNotFoundError" else None
    own = {file.stem for file in files} | {function.module.partition(".")[0] for function in pipeline.functions()}
    if not own or not (raised.kind.endswith("PicklingError") or (missing and missing["name"] in own)):
        return None
    names = ", ".join(function.name for function in pipeline.functions())
    return SpecError(
        f"{pipeline.source}: the module of a function of yours ({names}), or one that it imports, cannot be sent to "
        f"Spark's workers: {shortened(raised.message, _MAX_MESSAGE)}. A function must not use a lock, an open file, a "
        "connection or a functools.singledispatch of its module; make it inside the function, or install the module"
    )


def _of_spark(text: str, pipeline: Pipeline, *, kind: str) -> HindcastError | None:
    """Return the error of a disk, of a JVM or of a worker that did not start or has ended; None for any other text."""
    if kind.startswith(_OF_SPARK) and (unstarted := _NOT_STARTED.search(text)):
        program = unstarted["program"] or os.environ.get("PYSPARK_PYTHON")
        return RequestError(
            f"Spark could not start its workers with {program}: "
            f"{unstarted['why'] or 'it ended at once, and printed the reason above'}. Unset PYSPARK_PYTHON, or set it "
            f"to a Python {platform.python_version()} with the packages of Hindcast; readers see nothing of this replay"
        )
    if kind.startswith(_OF_SPARK) and (problem := disk_problem_in(text)):
        return StoreError(f"Spark could not write: {problem}. Readers see nothing of this replay")
    if kind == _JVM_GONE:
        return RequestError(
            "Spark's JVM ended during the replay: it was killed, or the machine has too little memory. Read the "
            "system's log, then run again; readers see nothing of this replay"
        )
    if not any(sign in text for sign in _WORKER_GONE):
        return None
    names = ", ".join(function.name for function in pipeline.functions())
    theirs = (
        f"a function of yours ended its process (os._exit, or a crash in a compiled library; the functions are {names})"
    )
    return RequestError(
        f"{pipeline.source}: a Python worker of Spark ended without an error. Either "
        f"{theirs if names else 'it was killed'}, or the machine has too little memory. Read the system's log, then "
        "run again; readers see nothing of this replay"
    )


def _in_worker(text: str) -> _Raised | None:
    """The last exception in a text of Spark; None if the text has no Python traceback."""
    calls = list(_FRAME.finditer(text))
    if _WORKER_TRACE not in text or not calls:
        return None
    after = text[calls[-1].end() :].lstrip("\n").split("\n")
    # Python indents the source lines and markers below a call, and does not indent the exception.
    first = next((place for place, line in enumerate(after) if line and not line.startswith(" ")), None)
    if first is None:
        return None
    kind, _, message = _JVM_TRACE.split("\n".join(after[first:]), maxsplit=1)[0].strip().partition(": ")
    frames_read = tuple((call["file"], int(call["line"]), call["name"]) for call in calls)
    return _Raised(calls=frames_read, kind=kind, message=message)


def _in_driver(error: BaseException) -> _Raised:
    frames = traceback.extract_tb(error.__traceback__)
    calls = tuple((frame.filename, frame.lineno or 0, frame.name) for frame in frames)
    return _Raised(calls=calls, kind=_kind(error).removeprefix("builtins."), message=str(error))


def _kind(error: BaseException) -> str:
    return f"{type(error).__module__}.{type(error).__qualname__}"
