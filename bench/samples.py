"""What one measurement gives, and the statistics of several."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, Final, Literal

Measure = Literal["wall_s", "cpu_s"]
"""Wall seconds of a run, or the CPU seconds (user and system) of its whole process tree."""

FOREIGN_SHARE: Final = 0.2
"""A sample is marked as disturbed if other processes used more than this share of the machine's cores during it."""
SHORT_S: Final = 0.5
"""The system counts CPU seconds in steps of 10 ms, and not at the same moment for all processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checksum:
    """The result of a contestant as four numbers. `mix` is a wrapping sum of a 64-bit hash of every row.

    `records` and `total` are the sums of the rows' numbers of records and of their totals.
    """

    rows: int
    records: int
    total: int
    mix: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One measured run.

    `rss_mb` has the greatest resident memory by role: `tree` is all processes together, `python` the process that
    called, `jvm` the largest Java process, `worker` the largest of the other processes. `foreign_cores` is the mean
    number of cores that all other processes of the machine used during the run.
    """

    wall_s: float
    cpu_s: float
    rss_mb: Mapping[str, float] = field(default_factory=dict)
    foreign_cores: float = 0.0

    def is_disturbed(self, cores: int) -> bool:
        """Return whether other processes used too much of the machine. A run shorter than SHORT_S cannot tell."""
        return self.wall_s >= SHORT_S and self.foreign_cores > FOREIGN_SHARE * cores

    def to_json(self) -> dict[str, Any]:
        """Return the sample as plain data."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Median, least and greatest of several numbers."""

    median: float
    least: float
    greatest: float

    @classmethod
    def of(cls, numbers: Sequence[float]) -> "Spread":
        """Return the spread of one number or more.

        Raises:
            ValueError: there are no numbers.
        """
        if not numbers:
            raise ValueError("a spread needs at least one number")
        return cls(median=median(numbers), least=min(numbers), greatest=max(numbers))


def ratio(ours: Sequence[Sample], peer: Sequence[Sample], measure: Measure) -> Spread:
    """Return by which factor the peer needs more than we do: the spread over the rounds of peer / ours.

    Raises:
        ValueError: the two have different numbers of rounds, or none.
    """
    if len(ours) != len(peer):
        raise ValueError(f"a ratio needs the same rounds of both: ours has {len(ours)}, the peer has {len(peer)}")
    pairs = zip(ours, peer, strict=True)
    return Spread.of([getattr(theirs, measure) / max(getattr(own, measure), 1e-9) for own, theirs in pairs])


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The straight line y = start + slope * x nearest to points, and the greatest relative distance of a point."""

    start: float
    slope: float
    worst_share: float


def straight_line(points: Sequence[tuple[float, float]]) -> Line:
    """Fit a line to (x, y) by least squares.

    Raises:
        ValueError: there are fewer than two different x.
    """
    xs, ys = [x for x, _ in points], [y for _, y in points]
    if len(set(xs)) < 2:
        raise ValueError(f"a line needs points at two different places, found {xs}")
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x in xs)
    start = mean_y - slope * mean_x
    worst = max(abs(y - start - slope * x) / max(abs(y), 1e-9) for x, y in points)
    return Line(start=start, slope=slope, worst_share=worst)
