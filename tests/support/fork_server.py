"""A process that has imported everything and forks a child for each command, which saves the start of Python.

Run as a program, it reads one request of JSON from each line of its standard input and answers with one line.
"""

import contextlib
import ctypes
import gc
import importlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any


def _serve() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        for name in request.get("imports", ()):
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        gc.freeze()
        status = _forked(request) if "call" in request else 0
        sys.stdout.write(f"{status}\n")
        sys.stdout.flush()


def _forked(request: dict[str, Any]) -> int:
    """Run a call in a child with a session of its own. Return its exit status; a negative signal if it was killed."""
    child = os.fork()
    if child == 0:
        _run(request)
    _, status = os.waitpid(child, 0)
    with contextlib.suppress(ProcessLookupError):  # what the call has started and left
        os.killpg(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(status)


def _run(request: dict[str, Any]) -> None:
    status = 70
    try:
        os.setsid()
        for number in (1, 2):
            file = os.open(request["output"][number - 1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(file, number)
        if request["control"]:
            os.environ["WRITE_FAULTS"] = request["control"]  # for programs that the call executes
            ctypes.CDLL(None).write_faults_use(request["control"].encode())
        module, _, name = request["call"].partition(":")
        status = getattr(importlib.import_module(module), name)(*request["arguments"]) or 0
        if request["modules"]:
            Path(request["modules"]).write_text("\n".join(sys.modules), encoding="utf-8")
    except BaseException:  # noqa: BLE001 - the child must not go on as a server
        sys.excepthook(*sys.exc_info())
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        os._exit(status)


if __name__ == "__main__":
    _serve()
