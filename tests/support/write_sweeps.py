"""Disturbs a command at any of its writes, and compares the lake with one in which the command was not disturbed."""

import json
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.support.write_faults import KILLS, Call, Ended, Fault, ForkServer, calls_for
from tests.support.written_lakes import HERE, Topology

KILLED: Final = -9
_REBUILT: Final = re.compile(r"/_snapshots?(/|$)")
"""Files that are made again if they are lost."""
_ADVICE: Final = re.compile(r"run the same command again|`hindcast |[Rr]un again|Check ")


class Point(NamedTuple):
    """A place of a sweep: a fault at the call with this number."""

    fault: Fault
    number: int


class Played(NamedTuple):
    """What became of a point. `problems` is empty if all that must be true was true."""

    point: Point
    call: Call | None
    ended: Ended
    problems: tuple[str, ...]

    def __str__(self) -> str:
        where = "no call" if self.call is None else " ".join(self.call)
        return f"{self.point.fault.name} at call {self.point.number} ({where}): {'; '.join(self.problems)}"


@dataclass
class Sweep:
    """One topology in a directory. `server` runs its commands."""

    topology: Topology
    server: ForkServer
    place: Path
    calls: tuple[Call, ...] = ()
    _seen: dict[str, Any] = field(default_factory=dict)

    def prepare(self) -> "Sweep":
        """Prepare the lake, and run the command once without a fault, for the calls and for what must be there."""
        for step in self.topology.before:
            is_own = len(step) == 1
            function, arguments = (step[0], ()) if is_own else ("command", (list(step),))
            ended = self.server.call(f"{HERE}:{function}", str(self._prepared), *arguments, learns=True)
            assert ended.status == 0, (step, ended)
        if self.topology.killed_at:
            calls = self._undisturbed(self._copy("first")).calls
            point = round(len(calls) * self.topology.killed_at)
            ended = self._command(self._prepared, fault=KILLS[0], point=point)
            assert ended.status == KILLED, ended
        home = self._copy("undisturbed")
        before = self._look(home)
        self.calls = self._undisturbed(home).calls
        _, facts = self._again(home)
        self._seen = {**facts, "first": before, "after": self._look(self._undisturbed_copy())}
        assert facts["before"] == self._seen["after"] == facts["after"], facts
        return self

    def undurable(self) -> list[str]:
        """Return the paths that the undisturbed command has written, and that a loss of power after it would undo."""
        home = self._copy("undisturbed")
        calls = self._undisturbed(home).calls
        return undurable(calls, home / "lake")

    def points(self, faults: Iterable[Fault]) -> list[Point]:
        """Return all points of faults."""
        return [Point(fault, number) for fault in faults for number in calls_for(self.calls, fault)]

    def play(self, point: Point) -> Played:
        """Run the command with a fault, look, run it again, and compare."""
        home = self._copy("run")
        ended = self._command(home, fault=point.fault, point=point.number)
        again, facts = self._again(home)
        problems = [*_of_fault(point.fault, ended, home), *self._of_lake(ended, again, facts)]
        return Played(point, ended.call, ended, tuple(problems))

    @property
    def _prepared(self) -> Path:
        return self.place / "prepared"

    @property
    def _function(self) -> str:
        return f"{HERE}:{self.topology.function}"

    def _copy(self, name: str) -> Path:
        shutil.rmtree(self.place / name, ignore_errors=True)
        return Path(shutil.copytree(self._prepared, self.place / name))

    def _undisturbed_copy(self) -> Path:
        home = self._copy("undisturbed")
        self._undisturbed(home)
        return home

    def _undisturbed(self, home: Path) -> Ended:
        ended = self.server.call(
            self._function, str(home), self.topology.command, self.topology.later_days, below=home / "lake",
            learns=True,
        )  # fmt: skip
        assert ended.status == 0, ended
        return ended

    def _command(self, home: Path, *, fault: Fault, point: int) -> Ended:
        return self.server.call(
            self._function, str(home), self.topology.command, self.topology.later_days, below=home / "lake",
            fault=fault, point=point,
        )  # fmt: skip

    def _look(self, home: Path) -> object:
        return json.loads(self.server.call(f"{HERE}:look", str(home), learns=True).out)

    def _again(self, home: Path) -> tuple[Ended, dict[str, Any]]:
        out = self.place / "facts.json"
        out.unlink(missing_ok=True)
        ended = self.server.call(
            f"{HERE}:run_again", str(home), self.topology.command, self.topology.later_days, str(out),
            learns=not self._seen,
        )  # fmt: skip
        return ended, json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}

    def _of_lake(self, ended: Ended, again: Ended, facts: dict[str, Any]) -> list[str]:
        """Return what is wrong with what readers see, the second command and the files that are left."""
        if not facts:
            return [f"nothing can be read after the second command: {again.err or again.status}"]
        first, after, before = self._seen["first"], self._seen["after"], facts["before"]
        is_done = before["ledger"] == after["ledger"] and bool(done := self.topology.done_already) and done in again.err
        checks = {
            f"readers saw a mixture: {before}": before["ledger"] in (first["ledger"], after["ledger"]),
            f"the current table had a mixture: {before}": before["current"] in (first["current"], after["current"]),
            "the command reported success, and readers see something else": ended.status != 0 or before == after,
            f"the second command failed ({again.status}): {again.err}": again.status == 0 or is_done,
            f"the second command ended with {facts['after']}, not with {after}": facts["after"] == after,
            "a clean-up has changed what readers see": facts["cleaned"] == after,
        } | {f"{name}: {facts[name]}": facts[name] == self._seen[name] for name in ("findings", "left", "strange")}
        return [*(problem for problem, is_right in checks.items() if not is_right), *_of_output(again)]


def undurable(calls: Iterable[Call], lake: Path) -> list[str]:
    """Return the files whose content, or whose name in its directory, was changed and not awaited by fsync.

    Args:
        calls: the calls of a command, in order.
        lake: the lake after it. Files that are gone need no disk.
    """
    content, names = set[str](), set[str]()
    for name, path in calls:
        match name:
            case "write" | "truncate":
                content.add(path)
            case "create" | "mkdir":
                names.add(path)
            case "rename" | "link":
                names.add(path)
                directory, _, last = path.rpartition("/")
                if {before for before in content if before.rpartition("/")[0] == directory and last in before}:
                    content.add(path)  # it may have been the file under another name
            case "fsync":
                content.discard(path)
                names = {entry for entry in names if (entry.rpartition("/")[0] or ".") != path}
            case _:  # a file that is removed, and comes back, is in no table
                pass
    changed = {path for path in content | names if path != "." and not _REBUILT.search(path)}
    return sorted(path for path in changed if (lake / path).exists())


def _of_fault(fault: Fault, ended: Ended, home: Path) -> Sequence[str]:
    """Return what is wrong with how the disturbed command ended."""
    problems = _of_output(ended)
    if fault.is_kill:
        if ended.status != (KILLED if ended.call else 0):
            problems.append(f"status {ended.status}: {ended.err}")
        return problems
    if ended.status not in {0, 1}:
        problems.append(f"status {ended.status}")
    if ended.status and str(home / "lake") not in ended.err:
        problems.append(f"the message names no path: {ended.err}")
    if ended.status and not _ADVICE.search(ended.err):
        problems.append(f"the message does not tell what to do: {ended.err}")
    return problems


def _of_output(ended: Ended) -> list[str]:
    marks = ("Traceback (most", "a bug in Hindcast")
    return [f"the output has {mark!r}: {ended.err}" for mark in marks if mark in ended.err]
