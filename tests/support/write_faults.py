"""Kills and errors at the n-th call of a command that changes files, with a library that is compiled for the tests."""

import errno
import itertools
import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.places import ROOT

_CONTROL: Final = struct.Struct("=qqiiii1024s1024s32s2048s")
"""`struct control` of write_faults.c."""
COMPILER: Final = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


class Mode(IntEnum):
    """What the library does at the point; the values are those of write_faults.c."""

    COUNT = 0
    KILL_BEFORE = 1
    KILL_AFTER = 2
    FAIL = 3
    FAIL_FROM = 4
    SHORT = 5
    DONE_THEN_FAIL = 6


class Fault(NamedTuple):
    """A disturbance. `error` is the errno of the call. `calls` are the names of the calls that it applies to."""

    mode: Mode
    error: int = 0
    calls: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.mode.name.lower()} {errno.errorcode.get(self.error, '')}".strip()

    @property
    def is_kill(self) -> bool:
        return self.mode in {Mode.KILL_BEFORE, Mode.KILL_AFTER}


KILLS: Final = (Fault(Mode.KILL_BEFORE), Fault(Mode.KILL_AFTER))
ERRORS: Final = (
    Fault(Mode.FAIL, errno.ENOSPC),
    Fault(Mode.FAIL_FROM, errno.ENOSPC),
    Fault(Mode.FAIL, errno.EIO),
    Fault(Mode.FAIL_FROM, errno.EDQUOT),
    Fault(Mode.SHORT, calls=("write",)),
    Fault(Mode.DONE_THEN_FAIL, errno.EIO, calls=("rename", "link")),
)


class Call(NamedTuple):
    """A counted call: its name, and the path below the directory."""

    name: str
    path: str


class Ended(NamedTuple):
    """How a command ended. `status` is negative after a signal. `call` is the disturbed call, if one was disturbed."""

    status: int
    out: str
    err: str
    call: Call | None
    calls: tuple[Call, ...]


def compiled(directory: Path) -> Path:
    """Compile the library into a directory."""
    library = directory / "write_faults.so"
    assert COMPILER is not None, "the caller skips its tests if the machine has no C compiler"
    source = str(Path(__file__).with_name("write_faults.c"))
    subprocess.run(
        [COMPILER, "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", str(library), source, "-ldl"],
        check=True,
    )
    return library


@dataclass
class ForkServer:
    """Runs calls in forked children of a process. `directory` is for its files.

    Without the library, no call can be counted or disturbed.
    """

    directory: Path
    library: Path | None = None
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def __enter__(self) -> "ForkServer":
        self.directory.mkdir(parents=True, exist_ok=True)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.fork_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            start_new_session=True,
            env={
                **os.environ,
                **({} if self.library is None else {"LD_PRELOAD": str(self.library)}),
                "PYTHONPATH": str(ROOT),
                "HINDCAST_WHO": "a test",
                "HINDCAST_FSYNC": "on",
                "TMPDIR": str(self.directory),
            },
        )
        return self

    def __exit__(self, *_exc: object) -> None:
        self._process.communicate()  # closes its input, which ends it

    def call(
        self, function: str, *arguments: object, below: Path | None = None, fault: Fault | None = None, point: int = 0,
        learns: bool = False,
    ) -> Ended:  # fmt: skip
        """Call a function in a child.

        Args:
            function: its module and name, as in `a.b:c`. Its result is the exit status.
            arguments: what it gets, as JSON.
            below: the calls for files below this directory are counted.
            fault: what happens.
            point: at the call with this number it happens. The first one is 1.
            learns: whether the server imports the modules that the function has imported, for later children.
        """
        place = self.directory / str(next(self._numbers))
        output = [f"{place}.out", f"{place}.err"]
        control, trace, modules = Path(f"{place}.control"), Path(f"{place}.trace"), Path(f"{place}.modules")
        if below is not None:
            _prepare(control, below, fault, point=point, trace=None if fault else trace)
        request = {
            "call": function, "arguments": arguments, "output": output, "modules": str(modules) if learns else "",
            "control": "" if below is None else str(control),
        }  # fmt: skip
        status = self._ask(request)
        if modules.exists():
            self._ask({"imports": modules.read_text(encoding="utf-8").split()})
        out, err = (Path(file).read_text(encoding="utf-8", errors="replace") for file in output)
        ended = Ended(status, out, err, _disturbed(control), _traced(trace))
        for file in (*map(Path, output), control, trace, modules):
            file.unlink(missing_ok=True)
        return ended

    def _ask(self, request: object) -> int:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(request) + "\n")
        stdin.flush()
        return int(stdout.readline())


def _prepare(control: Path, below: Path, fault: Fault | None, *, point: int, trace: Path | None) -> None:
    mode, error = (Mode.COUNT, 0) if fault is None else (fault.mode, fault.error)
    texts = (f"{below.resolve()}/".encode(), str(trace or "").encode(), b"", b"")
    control.write_bytes(_CONTROL.pack(0, point, mode, error, 0, 0, *texts))


def _disturbed(control: Path) -> Call | None:
    if not control.exists():
        return None
    *_, fired, _group, below, _trace, call, path = _CONTROL.unpack(control.read_bytes())
    text, root, name = (word.partition(b"\0")[0].decode() for word in (path, below, call))
    return Call(name, text.removeprefix(root)) if fired else None


def _traced(trace: Path) -> tuple[Call, ...]:
    if not trace.exists():
        return ()
    lines = trace.read_text(encoding="utf-8").splitlines()
    return tuple(Call(*line.split(" ", 1)) for line in lines)


def calls_for(calls: Sequence[Call], fault: Fault) -> list[int]:
    """Return the numbers of the calls that a fault applies to."""
    return [number for number, call in enumerate(calls, start=1) if not fault.calls or call.name in fault.calls]
