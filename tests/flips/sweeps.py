"""Flips one bit at a time in the files of a lake, and records who finds it: a run, `verify` or a reader."""

import json
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from jobs.lake.json_lines import json_lines
from tests.flips.lakes import CURRENT, HERE, OURS, READ_COMMITS, Outcome
from tests.flips.regions import regions_of
from tests.support.flipped_bits import flip
from tests.support.log_files import COVERS, Cover
from tests.support.write_faults import Ended, ForkServer
from windowlib.records import tables

_OUTPUTS: Final = (tables.WINDOW_OUTPUTS,)
_SIDE: Final = (
    tables.LATE_RECORDS, tables.UNASSIGNED_RECORDS, tables.INVALID_RECORDS, tables.DUPLICATE_RECORDS,
)  # fmt: skip
_MARKS: Final = ("Traceback (most", "a bug in Hindcast", "panicked at")


def _unread_files(log: Path) -> frozenset[Path]:
    """Return the newest commits of the log, and the files that they have added: no run has read them."""
    commits = sorted(log.glob("_delta_log/*.json"))[READ_COMMITS:]
    actions = (action for commit in commits for action in json_lines(commit.read_bytes()))
    added = (log / unquote(action["add"]["path"]) for action in actions if "add" in action)
    return frozenset([*commits, *added])


class Group(NamedTuple):
    """Tables of a lake whose files are flipped together, and what is done with the lake.

    Attributes:
        name: the name in the published table.
        directories: those of the files, below the lake.
        cover: what protects the files of the log.
        command: the function of `lakes` that runs after a flip.
        is_first: whether nobody has read the log before.
        before_flip: the function of `lakes` that makes files in each copy of the lake before the flip.
    """

    name: str
    directories: tuple[str, ...]
    cover: Cover = "page checksums"
    command: str = "run"
    is_first: bool = False
    before_flip: str = ""


def _of_late(*names: str) -> tuple[str, ...]:
    return tuple(f"late/{name}" for name in names)


GROUPS: Final = (
    *(Group(f"event log, {cover}", ("log",), cover) for cover in COVERS),
    Group("event log, nothing, before its first reading", ("log",), "nothing", is_first=True),
    Group("outputs", _of_late(*_OUTPUTS)),
    Group("side tables", _of_late(*_SIDE)),
    Group("checkpoints", _of_late(*tables.CHECKPOINT_TABLES)),
    Group("tallies", _of_late(tables.TALLIES)),
    Group("results of checks", _of_late(tables.QUALITY_RESULTS)),
    Group("ledger", _of_late(tables.LEDGER)),
    Group("snapshot of the ledger", _of_late(f"{tables.LEDGER}/_snapshot"), before_flip="make_snapshot"),
    Group("current table", _of_late(CURRENT)),
    Group("upstream cache", ("sums/upstream",), command="run_sums"),
)


class Place(NamedTuple):
    """One bit of one file, whose path is relative to the lake."""

    kind: str
    file: str
    byte: int
    bit: int


class Found(NamedTuple):
    """Who has found a flip, and what was wrong without an error."""

    place: Place
    by_run: bool
    by_verify: bool
    by_reader: bool
    wrong: tuple[str, ...]
    problems: tuple[str, ...]

    @property
    def is_silent(self) -> bool:
        """Something differs, and not even `verify` tells."""
        return bool(self.wrong) and not self.by_verify

    @property
    def is_harmless(self) -> bool:
        return not (self.by_run or self.by_verify or self.by_reader or self.wrong)


@dataclass
class Sweep:
    """One group in a directory. `server` runs the functions of `lakes`."""

    group: Group
    server: ForkServer
    place: Path
    _good: dict[str, Any] = field(default_factory=dict)

    def prepare(self) -> "Sweep":
        """Make the lake, and record what readers and the command give without a flip."""
        self._call("make", self._prepared, self.group.cover, learns=True)
        if self.group.is_first:
            self._call("forget_ledger", self._prepared, learns=True)
        if self.group.before_flip:
            self._call(self.group.before_flip, self._prepared, learns=True)
        home = self._copy("undisturbed")
        for function, allowed in (("read", {0, 1} if self.group.is_first else {0}), (self.group.command, {0})):
            ended, self._good[function] = self._seen(function, home, learns=True)
            assert ended.status in allowed, ended
        return self

    def places(self, most: int, *, seed: int = 0) -> list[Place]:
        """Return at most so many places of each kind of region, at equal distances; of small regions, every byte.

        Files of the log without checksums are protected from their first reading on, so others are left out.
        """
        bytes_of: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
        lake = self._prepared / "lake"
        is_bare = self.group.cover == "nothing" and not self.group.is_first
        unread = _unread_files(lake / "log") if is_bare else frozenset()
        files = (path for name in self.group.directories for path in sorted((lake / name).rglob("*")))
        for path in (path for path in files if path.is_file() and path.stat().st_size and path not in unread):
            name = str(path.relative_to(lake))
            for kind, start, stop in regions_of(path):
                bytes_of[kind].extend((name, byte) for byte in range(start, stop))
        rng = Random(seed)
        return [
            Place(kind, *own[number * len(own) // count], rng.randrange(8))
            for kind, own in sorted(bytes_of.items())
            for count in [min(most, len(own))]
            for number in range(count)
        ]

    def play(self, place: Place) -> Found:
        """Flip a bit in a copy of the lake, read, verify and run, and compare."""
        home = self._copy("flipped")
        path = home / "lake" / place.file
        if self.group.before_flip:
            path.unlink()
            self._call(self.group.before_flip, home)
        flip(path, min(place.byte, path.stat().st_size - 1) * 8 + place.bit)
        checked, before = self._seen("read", home)
        ended, after = self._seen(self.group.command, home)
        wrong = [
            *(f"{name} before the run" for name in _different(self._good["read"], before)),
            *(f"{name} after the run" for name in _different(self._good[self.group.command], after)),
        ]
        errors = [*_new_errors(self._good["read"], before), *_new_errors(self._good[self.group.command], after)]
        return Found(
            place,
            by_run=ended.status != 0,
            by_verify=checked.status != 0 and not self.group.is_first,
            by_reader=bool(errors),
            wrong=tuple(wrong),
            problems=(*_problems(checked), *_problems(ended), *(error for error in errors if _is_unclear(error))),
        )

    @property
    def _prepared(self) -> Path:
        return self.place / "prepared"

    def _copy(self, name: str) -> Path:
        shutil.rmtree(self.place / name, ignore_errors=True)
        return Path(shutil.copytree(self._prepared, self.place / name))

    def _call(self, function: str, home: Path, *arguments: object, learns: bool = False) -> Ended:
        return self.server.call(f"{HERE}:{function}", str(home), *arguments, learns=learns)

    def _seen(self, function: str, home: Path, *, learns: bool = False) -> tuple[Ended, Mapping[str, Outcome]]:
        out = self.place / "seen.json"
        out.unlink(missing_ok=True)
        ended = self._call(function, home, str(out), learns=learns)
        if not out.exists():
            return ended, {}
        return ended, {name: Outcome(*values) for name, values in json.loads(out.read_text(encoding="utf-8")).items()}


def _different(good: Mapping[str, Outcome], seen: Mapping[str, Outcome]) -> Iterator[str]:
    """Yield what was read without an error, and is not what it was without a flip."""
    return (name for name, outcome in seen.items() if not outcome.error and outcome.seen != good[name].seen)


def _new_errors(good: Mapping[str, Outcome], seen: Mapping[str, Outcome]) -> Iterator[str]:
    return (outcome.error for name, outcome in seen.items() if outcome.error and not good[name].error)


def _is_unclear(error: str) -> bool:
    """Return whether an error of Hindcast's readers has several lines. The current table has other readers."""
    return error.startswith(OURS) and "\n" in error


def _problems(ended: Ended) -> Iterator[str]:
    """Yield what is wrong with how a command ended: a signal, a traceback, or a message that blames Hindcast."""
    if ended.status not in {0, 1}:
        yield f"status {ended.status}: {ended.err}"
    yield from (f"the output has {mark!r}: {ended.err}" for mark in _MARKS if mark in ended.err)


COLUMNS: Final = ("flips", "run", "verify", "reader", "harmless", "wrong until `verify`", "silent")


def counted(played: Iterable[Found]) -> tuple[int, ...]:
    """Return the numbers of `COLUMNS`."""
    every = list(played)
    return (
        len(every),
        sum(flip.by_run for flip in every),
        sum(flip.by_verify for flip in every),
        sum(flip.by_reader for flip in every),
        sum(flip.is_harmless for flip in every),
        sum(bool(flip.wrong) and flip.by_verify for flip in every),
        sum(flip.is_silent for flip in every),
    )


def table_lines(played: Mapping[str, Sequence[Found]]) -> Iterator[str]:
    """Yield the lines of the table: group and region, and the counts of its flips.

    The regions of Delta's checkpoints are one line.
    """
    yield "| table | region | " + " | ".join(COLUMNS) + " |"
    yield "|---|---" + "|---:" * len(COLUMNS) + "|"
    for group, every in played.items():
        kinds: defaultdict[str, list[Found]] = defaultdict(list)
        for flip_ in every:
            kinds[flip_.place.kind.partition(" of Delta:")[0]].append(flip_)
        for kind, own in kinds.items():
            yield f"| {group} | {kind} | " + " | ".join(f"{number:,}" for number in counted(own)) + " |"
    everything = [flip_ for every in played.values() for flip_ in every]
    yield "| all | | " + " | ".join(f"{number:,}" for number in counted(everything)) + " |"
