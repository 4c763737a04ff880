"""The results of contests as plain data: what `docs/benchmarks/results.json` holds and the page is made of."""

import re
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, Final

from bench.contestant import title_of
from bench.contests import Contest, Entry, Played, Target
from bench.samples import Measure, Sample, Spread, ratio, straight_line

MEASURES: Final[tuple[Measure, ...]] = ("wall_s", "cpu_s")
UNITS: Final = {"rate": "M records/s and core", "seconds": "s", "mb": "MB", "ratio": "x"}
LOWER_IS_BETTER: Final = frozenset({"seconds", "mb"})
_DAYS: Final = re.compile(r"@(\d+) days$")


def result_of(played: Played) -> dict[str, Any]:
    """Return a contest and everything measured in it as plain data."""
    contest = played.contest
    return {
        "name": contest.name,
        "title": contest.title,
        "what": contest.what,
        "records": contest.records,
        "measure": contest.measure,
        "process": "new in each round" if contest.is_fresh else "warm",
        "rounds": max(len(entry.samples) for entry in played.entries),
        "entries": [_entry(contest, entry, played.entries[0]) for entry in played.entries],
        "targets": [_target(played, target) for target in contest.targets],
        "line": _line(contest, played.entries),
        "disturbed": list(played.disturbed),
    }


def _entry(contest: Contest, entry: Entry, ours: Entry) -> dict[str, Any]:
    samples = entry.samples
    found: dict[str, Any] = {"name": entry.name, "title": title_of(entry.name), "missing": entry.missing}
    if not samples:
        return found
    spreads = {name: _spread([getattr(one, name) for one in samples]) for name in MEASURES}
    compared = entry is not ours and contest.equal == "all" and len(ours.samples) == len(samples)
    return {
        **found,
        "wall_s": spreads["wall_s"],
        "cpu_s": spreads["cpu_s"],
        "rss_mb": _peaks(samples),
        "rate": contest.records / spreads["cpu_s"]["median"] / 1e6 if spreads["cpu_s"]["median"] else None,
        "ratios": {name: _as_dict(ratio(ours.samples, samples, name)) for name in MEASURES} if compared else {},
        "samples": [one.to_json() for one in samples],
        "checksum": None if contest.equal == "none" else _plain(entry),
        "notes": dict(entry.notes[-1]),
    }


def _plain(entry: Entry) -> dict[str, int]:
    first = entry.checksums[0]
    return {"rows": first.rows, "records": first.records, "total": first.total, "mix": first.mix}


def _peaks(samples: Sequence[Sample]) -> dict[str, float]:
    roles = sorted({role for one in samples for role in one.rss_mb})
    return {role: max(one.rss_mb.get(role, 0.0) for one in samples) for role in roles}


def _target(played: Played, target: Target) -> dict[str, Any]:
    found = _reached(played, target)
    sign = -1 if target.unit in LOWER_IS_BETTER else 1
    return {
        "what": _what(target),
        "unit": UNITS[target.unit],
        "must": target.must,
        "aim": target.aim,
        "found": found,
        "verdict": "not measured"
        if found is None
        else "aim reached"
        if sign * found >= sign * target.aim
        else "met"
        if sign * found >= sign * target.must
        else "MISSED",
    }


def _reached(played: Played, target: Target) -> float | None:
    ours = played.entry(target.ours).samples
    if not ours:
        return None
    match target.unit:
        case "seconds":
            return median(one.wall_s for one in ours)
        case "rate":
            return played.contest.records / median(one.cpu_s for one in ours) / 1e6
        case "mb":
            return _peaks(ours).get(target.role)
        case "ratio":
            peer = played.entry(target.peer).samples
            return ratio(ours, peer, target.measure).median if peer else None


def _what(target: Target) -> str:
    ours = title_of(target.ours)
    match target.unit:
        case "ratio":
            seconds = "CPU seconds" if target.measure == "cpu_s" else "seconds"
            return f"{seconds} of {title_of(target.peer)} by those of {ours}"
        case "rate":
            return ours
        case "seconds":
            return f"{ours}: seconds"
        case "mb":
            return f"{ours}: greatest resident memory of a {target.role} process"


def _line(contest: Contest, entries: Sequence[Entry]) -> dict[str, float] | None:
    """The straight line through contestants that are named by a number of days."""
    points = [
        (float(found[1]), median(one.wall_s for one in entry.samples))
        for entry in entries
        if (found := _DAYS.search(entry.name)) and entry.samples
    ]
    if contest.measure != "wall_s" or len(points) < 2:
        return None
    line = straight_line(points)
    return {"start_s": line.start, "s_per_day": line.slope, "worst_share": line.worst_share}


def _spread(numbers: Sequence[float]) -> dict[str, float]:
    return _as_dict(Spread.of(numbers))


def _as_dict(spread: Spread) -> dict[str, float]:
    return {"median": spread.median, "least": spread.least, "greatest": spread.greatest}


def merged(before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> dict[str, Any]:
    """Return the contests of both documents; those of `now` replace those of the same name.

    Contests of another machine, commit or size are not kept. Contests may have different numbers of rounds.
    """
    kept = (
        before is not None
        and before["size"] == now["size"]
        and before["machine"]["cpu"] == now["machine"]["cpu"]
        and before["machine"]["commit"] == now["machine"]["commit"]
    )
    old = {one["name"]: one for one in before["contests"]} if before is not None and kept else {}
    new = {one["name"]: one for one in now["contests"]}
    return {**now, "contests": list((old | new).values())}
