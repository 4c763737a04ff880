"""Folds long runs of equal lines: `2013-01-23 … 2013-02-28: 37 slices, perhaps: state before changed`.

Commands and log lines fold; JSON output never does. The module knows nothing about slices, runs or terminals.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from jobs.plain_text import first_of

FOLD_FROM = 4
"""This many equal lines in a row, or more, become one line."""

MAX_SPANS = 8
"""`spans` names at most this many stretches."""

MAX_LINES = 12
"""`first_lines` shows at most this many lines."""

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class Stretch(Generic[_Item]):
    """Consecutive items that are shown as one line. `items` has one item, or at least `at_least` equal ones."""

    items: tuple[_Item, ...]

    @property
    def first(self) -> _Item:
        return self.items[0]

    @property
    def is_folded(self) -> bool:
        """Whether the line stands for several items."""
        return len(self.items) > 1


def fold(
    items: Iterable[_Item],
    alike: Callable[[_Item], Hashable],
    *,
    at_least: int = FOLD_FROM,
    follows: Callable[[_Item, _Item], bool] | None = None,
) -> list[Stretch[_Item]]:
    """Return the items in order, with long runs of equal ones as one stretch. No item is lost or moved.

    Items for which `alike` returns the same share a line. Shorter runs than `at_least` are not folded: each of their
    items is a stretch of its own. `follows` returns whether the second item comes directly after the first; a gap ends
    a stretch. None: there are no gaps.
    """
    stretches: list[Stretch[_Item]] = []
    run: list[_Item] = []
    key: Hashable = None

    def close() -> None:
        if len(run) >= max(at_least, 1):
            stretches.append(Stretch(tuple(run)))
        else:
            stretches.extend(Stretch((item,)) for item in run)
        run.clear()

    for item in items:
        own = alike(item)
        if run and (own != key or (follows is not None and not follows(run[-1], item))):
            close()
        key = own
        run.append(item)
    close()
    return stretches


def span(names: Sequence[str], what: str = "slice") -> str:
    """Return one name, or the first and the last of several: `2013-01-23 … 2013-02-28: 37 slices`."""
    return names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}: {len(names):,} {what}s"


def folded_line(names: Sequence[str], text: str, what: str = "slice") -> str:
    """Return a line about one name or several: `2013-01-23: current`, `2013-01-23 … 2013-02-28: 37 slices, current`."""
    return f"{span(names, what)}{': ' if len(names) == 1 else ', '}{text}"


def spans(stretches: Sequence[Sequence[str]], most: int = MAX_SPANS) -> str:
    """Return the ends of each stretch of names: `2013-02-01 … 2013-02-07, 2013-02-10 … 2013-02-14 and 3 more`.

    At most `most` of them are named.
    """
    named = [names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}" for names in stretches]
    return first_of(named, most)


def first_lines(lines: Sequence[str], most: int = MAX_LINES) -> tuple[str, ...]:
    """Return the first lines, and a line that tells how many more there are."""
    return (*lines[:most], *([f"… and {len(lines) - most:,} more"] if len(lines) > most else []))
