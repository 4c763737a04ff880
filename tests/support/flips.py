"""Flips bits of stored files, one at a time, and tells whether what is read changes without an error."""

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tests.support.flipped_bits import flip
from tests.support.fuzzing import first_seed
from windowlib.errors import HindcastError


@dataclass(frozen=True)
class Read:
    """A reader of stored files, and what it returns of undamaged ones. `tells` is whether a result shows the damage."""

    read: Callable[[], object]
    tells: Callable[[object], bool] = lambda _result: False

    @cached_property
    def good(self) -> object:
        return self.read()


def sweep(readers: Mapping[Path, Read], *, flips: int) -> Counter[str]:
    """Flip bits of the files below directories. Return how many were found, and how many were harmless.

    A flip is found if the reader of the directory raises an error of ours, of one paragraph, or returns what shows it.
    It is harmless if the reader returns what it returned before. Any other flip fails the test. Half of the flips are
    in the newest data file and commit file of each directory, and in the checksum files beside them, if there are any.
    """
    seed = first_seed()
    print(f"HINDCAST_SEED={seed}")  # noqa: T201 - pytest shows it with a failure
    rng = random.Random(seed)
    places = [*readers]
    files = {place: [path for path in place.rglob("*") if path.is_file() and path.stat().st_size] for place in places}
    for found in files.values():  # names are random, times are not
        found.sort(key=lambda path: (path.stat().st_mtime_ns, path.name))
    newest = {place: _newest(found) for place, found in files.items()}
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    for number in range(flips):
        place = rng.choice(places)
        path = rng.choice(newest[place] if rng.random() < 0.5 else files[place])
        bit = rng.randrange(path.stat().st_size * 8)
        expected = readers[place].good
        with flipped(path, bit):
            try:
                result = readers[place].read()
                kind = "harmless" if result == expected else "found" if readers[place].tells(result) else "silent"
            except HindcastError as error:
                kind = "of several lines" if "\n" in str(error) else "found"
        counts[kind] += 1
        if kind not in {"found", "harmless"}:
            wrong.append(f"flip {number}: bit {bit} of {path} is {kind}")
    assert not wrong, (counts, *wrong[:20])
    return counts


@contextmanager
def flipped(path: Path, bit: int) -> Iterator[None]:
    """Flip one bit of a file during the context. Its size and its time of modification stay as they are."""
    stamp = path.stat()
    good = flip(path, bit)
    try:
        os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        yield
    finally:
        path.write_bytes(good)
        os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))


def _newest(files: Sequence[Path]) -> list[Path]:
    """Return the newest data file, the newest commit file, and the files with their checksums."""
    plain = [path for path in files if not path.name.endswith(".crc")]
    data = [path for path in plain if "_delta_log" not in path.parts]
    commits = [path for path in plain if path not in data]
    newest = [max(paths, key=lambda path: (path.stat().st_mtime_ns, path.name)) for paths in (data, commits) if paths]
    return [path for one in newest for path in (one, one.with_name(f".{one.name}.crc")) if path in files]
