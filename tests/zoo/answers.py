"""The frozen answers: what `Sizes(way="frames")` gave for each entry, as JSON files next to this module."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from tests.zoo.entries import Entry
from tests.zoo.replaying import Answer, Refused, Zoo

DIRECTORY = Path(__file__).parent / "answers"


def answer_file(entry: Entry) -> Path:
    """Return the file with the frozen answer of an entry."""
    name = entry.answer or re.sub("[^0-9A-Za-z]+", "_", entry.name)
    return DIRECTORY / f"{name}.json"


def frozen(entry: Entry) -> Answer | None:
    """Return the frozen answer; None if there is none yet."""
    path = answer_file(entry)
    return dict(json.loads(path.read_text("utf-8"))) if path.is_file() else None


def freeze(entry: Entry, answer: Answer) -> None:
    """Write the answer of an entry, one line for each run and table."""
    lines = [f'"{name}": {json.dumps(part, indent=1, sort_keys=True)}' for name, part in sorted(answer.items())]
    answer_file(entry).write_text("{" + ",\n".join(lines) + "}\n", encoding="utf-8")


def compared(zoo: Zoo, entry: Entry) -> str | None:
    """Replay an entry; return what differs from its frozen answer or its refusal, None if nothing does."""
    try:
        answer = zoo.replay(entry)
    except Refused as error:
        return None if entry.refused and entry.refused in str(error) else f"refused: {error}"
    if entry.refused is not None:
        return f"it is not refused any more (expected: {entry.refused})"
    expected = frozen(entry)
    return "it has no frozen answer" if expected is None else difference(answer, expected)


def difference(answer: Answer, expected: Answer) -> str | None:
    """Return the first place where two answers differ; None if they are equal."""
    return next(_differences("", answer, expected), None)


def _differences(place: str, one: object, other: object) -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        for name in sorted({*one, *other}):
            yield from _differences(f"{place}.{name}", one.get(name), other.get(name))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, (mine, its) in enumerate(zip(one, other, strict=True)):
            yield from _differences(f"{place}[{number}]", mine, its)
    elif one != other:
        yield f"{place}: {one!r}, expected {other!r}"
