"""Hostile forms of valid files: documents with other members, other bytes, and things that are no regular file."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from random import Random
from resource import RLIMIT_AS, getpagesize, getrlimit, setrlimit
from signal import ITIMER_REAL, SIGALRM, setitimer, signal
from typing import Any, Final, Never

MB: Final = 1_000_000
LONGEST_S: Final = 60


class HangsError(BaseException):
    """A reader takes too long. No handler of the product catches this class."""


VALUES: Final[tuple[Any, ...]] = (
    None, True, False, 0, -1, 2**31, 2**63, -(2**63) - 1, 10**30, 1.5, -0.0, "", " ", "x" * 5_000, "\0", "\ud800",
    "\x1b[2J\r\nFORGED", "../../etc/passwd", "é", [], {}, [[]], {"": None}, [None], "NaN", "1e999", "9" * 400,
)  # fmt: skip
_RAW: Final = ("NaN", "Infinity", "-Infinity", "1e999", "9" * 5_000, "[" * 100_000, '{"a":' * 100_000, "\\", '"', "\0")
"""Texts in place of a value that `json.dumps` does not write."""
_MARK: Final = "@mark@"
Put = Callable[[Path, bytes], object]


def mutated(rng: Random, document: Any) -> bytes:  # noqa: ANN401 - JSON
    """Return the text of a JSON document with one to three changes."""
    document = json.loads(json.dumps(document))
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        document = _changed(rng, document)
    text = json.dumps(document, ensure_ascii=rng.random() < 0.5)
    if _MARK in text:
        text = text.replace(f'"{_MARK}"', rng.choice(_RAW))
    return text.encode("utf-8", errors="surrogatepass")


def _changed(rng: Random, document: Any) -> Any:  # noqa: ANN401
    """Change one place of a document: its value, its key, whether it is there, or its order."""
    places = [*_places(document, ())]
    if not places:
        return rng.choice((*VALUES, _MARK))
    *path, last = rng.choice(places)
    parent = document
    for step in path:
        parent = parent[step]
    change = rng.randrange(6)
    value = parent[last]
    if change == 0:
        del parent[last]
    elif change == 1 and isinstance(parent, dict):
        parent[rng.choice((str(last).upper(), f"{last} ", "x", "", "__class__", "\ud800"))] = parent.pop(last)
    elif change == 2:
        parent[last] = [value] if rng.random() < 0.5 else {"value": value}
    elif change == 3 and isinstance(value, list):
        parent[last] = value * 2 if rng.random() < 0.5 else value[::-1]
    elif change == 4:
        parent[last] = _MARK
    else:
        parent[last] = deepcopy(rng.choice(VALUES))  # a later change must not reach VALUES
    return document


def _places(document: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:  # noqa: ANN401
    if not isinstance(document, dict | list):
        return
    for name, value in document.items() if isinstance(document, dict) else enumerate(document):
        yield (*path, name)
        yield from _places(value, (*path, name))


def scrambled(rng: Random, content: bytes) -> bytes:
    """Return bytes with one change: other bytes, lost ones, doubled ones, or texts that break a parser."""
    place = rng.randrange(len(content) + 1)
    size = rng.randrange(1, 40)
    further = rng.choice(
        (b"\0", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\r\n", b"\x1b[2J", b"\x85", b"\xe2\x80\xa8", b"\t", b"- ",
         b"&a [*a]", b"*a", b"!!python/object:x ", b"? ", b"%YAML 9.9\n", b"---\n", b"[" * 2_000, b"{", b"}", b"'",
         b"9" * 5_000, b"1e999", b"<<: ", rng.randbytes(size))
    )  # fmt: skip
    return rng.choice(
        (
            content[:place],
            content[:place] + further + content[place:],
            content[:place] + content[place + size :],
            content[:place] + content[place : place + size] * 2 + content[place + size :],
            content[:place] + further + content[place + len(further) :],
        )
    )


# --- Things in place of a file ----------------------------------------------------------------------------------------


def _link_to(target: str) -> Put:
    return lambda path, _content: path.symlink_to(target)


def _linked(path: Path, content: bytes) -> None:
    target = path.with_name(f"{path.name}.target")
    target.write_bytes(content)
    path.symlink_to(target)


FORMS: Final[Mapping[str, Put]] = {
    "empty": lambda path, _content: path.write_bytes(b""),
    "half": lambda path, content: path.write_bytes(content[: len(content) // 2]),
    "byte order mark": lambda path, content: path.write_bytes(b"\xef\xbb\xbf" + content),
    "CRLF": lambda path, content: path.write_bytes(content.replace(b"\n", b"\r\n")),
    "CR": lambda path, content: path.write_bytes(content.replace(b"\n", b"\r")),
    "UTF-16": lambda path, content: path.write_bytes(content.decode("utf-8", errors="replace").encode("utf-16")),
    "NUL bytes": lambda path, _content: path.write_bytes(bytes(2_000)),
    "NUL at the end": lambda path, content: path.write_bytes(content + b"\0"),
    "10 MB of spaces": lambda path, content: path.write_bytes(content + b" " * 10 * MB),
    "10 MB of brackets": lambda path, _content: path.write_bytes(b"[" * 10 * MB),
    "10 MB of a text": lambda path, _content: path.write_bytes(b'"' + b"x" * 10 * MB + b'"'),
    "nearly 1 MB of keys": lambda path, _content: path.write_bytes(
        json.dumps({f"key {number}": number for number in range(45_000)}).encode()
    ),
    "a link": _linked,
    "a link to itself": lambda path, _content: path.symlink_to(path.name),
    "a link to nothing": _link_to("nothing"),
    "a link to /dev/zero": _link_to("/dev/zero"),
    "a directory": lambda path, _content: path.mkdir(),
    "a pipe": lambda path, _content: os.mkfifo(path),
}
"""What may be in place of a file. `put` makes it."""


def put(form: str, path: Path, content: bytes) -> None:
    """Put a hostile form of a file in its place."""
    path.unlink(missing_ok=True)
    FORMS[form](path, content)


@contextmanager
def bounded(seconds: float = LONGEST_S, memory: int = 1_000 * MB) -> Iterator[None]:
    """End what takes longer, such as the reading of a pipe that nobody writes, with a HangsError.

    What needs more memory than this process has already, and the given bytes, gets a MemoryError.
    """

    def over(_signal: int, _frame: object) -> Never:
        raise HangsError(f"it takes longer than {seconds} s")

    before, limits = signal(SIGALRM, over), getrlimit(RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * getpagesize()
    setrlimit(RLIMIT_AS, (used + memory, limits[1]))
    setitimer(ITIMER_REAL, seconds)
    try:
        yield
    finally:
        setrlimit(RLIMIT_AS, limits)
        setitimer(ITIMER_REAL, 0)
        signal(SIGALRM, before)
