"""The differences between two specs of a pipeline, key by key, as a person reads them in a pipeline file."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from jobs.engine.fingerprints import key_orders, relevant_document, spec_fingerprint
from jobs.pipeline.files import pipeline_document
from jobs.pipeline.models.pipeline import Pipeline
from jobs.plain_text import first_of, shortened
from jobs.runs import Slice
from windowlib.errors import SpecError

_MAX_VALUE: Final = 60
_MAX_NAMED: Final = 5
_OF_CODE: Final = "a function, or Hindcast itself, has changed"
_OF_FIRING: Final = ("watermark", "windows", "log.", "semantics", _OF_CODE)


def fingerprint_now(stored: Pipeline) -> str | None:
    """Return the fingerprint of a stored spec with the functions of now; None if one of them is gone."""
    try:
        return spec_fingerprint(stored)
    except SpecError:
        return None


def spec_changes(before: Pipeline, after: Pipeline, *, spec: str | None = None) -> tuple[str, ...]:
    """Return the keys that change rows and have other values, such as `windows.allowed_lateness: 30m -> 1h`.

    `spec` is the fingerprint with which `before` was computed; None: it is not known. If a user's function, or a
    version of Hindcast, makes the specs differ, the last text tells that.
    """
    documents = [pipeline_document(pipeline) for pipeline in (before, after)]
    old, new = ({**relevant_document(document), "order": {}} for document in documents)
    changes = (*_changes("", old, new), *_other_orders(*map(key_orders, documents)))
    is_of_code = not changes or (spec is not None and fingerprint_now(before) != spec)
    return (*changes, _OF_CODE) if is_of_code else changes


def _of_firing(changes: Sequence[str]) -> list[str]:
    """Return the changes that decide which windows there are, when they fire, and what their panes have."""
    return [change for change in changes if change.startswith(_OF_FIRING)]


def may_fire_otherwise(before: Pipeline, after: Pipeline, *, spec: str) -> bool:
    """Return whether two different specs may fire other windows. A user's function may have changed, too.

    `spec` is the fingerprint with which `before` was computed.
    """
    return bool(_of_firing(spec_changes(before, after, spec=spec)) or after.functions())


def border_warning(changes: Sequence[str], *, first: Slice, published: Slice) -> str | None:
    """Return that an adoption may lose windows over its border, or show their records twice; None if it cannot.

    Slices before `first` keep the panes of the old spec. The new chain does not publish the panes that it fires there.
    """
    firing = _of_firing(changes)
    if not firing or first.start_ms <= published.start_ms:
        return None
    what = ", ".join("the change of code" if change == _OF_CODE else change.partition(": ")[0] for change in firing)
    return (
        f"{what} may change when windows fire, what their panes have, or which windows there are. The "
        f"slices before {first.slice_id} keep their panes, so readers may see records of windows that are open "
        f"there twice, or never. If they would, a check holds the request.{_of_slices(firing)} `hindcast diff` prints "
        f"the difference. Or replay the published slices with the new spec: --from {published.slice_id}"
    )


def _of_slices(changes: Sequence[str]) -> str:
    """Return that the slices on both sides of a border are told by other columns; empty if they are not."""
    if not any(change.startswith(("log.slice.by", "log.slice.format")) for change in changes):
        return ""
    return (
        " No check tells records that the former columns put into a slice before it, and the new ones into a later "
        "slice, which readers see twice, or the other way round, which they never see."
    )


def in_one_sentence(changes: tuple[str, ...]) -> str:
    """Return the changes as one text."""
    return first_of(changes, _MAX_NAMED, separator="; ")


def _changes(path: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for name in dict.fromkeys((*before, *after)):
        place = f"{path}.{name}" if path else name
        old, new = before.get(name), after.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from _changes(place, old, new)
        elif old != new:
            yield f"{place}: {_shown(old)} -> {_shown(new)}"


def _other_orders(before: Mapping[str, Sequence[str]], after: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for place in sorted(before.keys() & after.keys()):
        old, new = before[place], after[place]
        if old != new and sorted(old) == sorted(new):
            yield f"{place}: keys in the order {', '.join(old)} -> {', '.join(new)}"


def _shown(value: object) -> str:
    if value is None:
        return "(not there)"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    return shortened(text, _MAX_VALUE)
