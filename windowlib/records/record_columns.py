"""The protocol of records as columns, for operators that process many records together."""

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple, Protocol

from windowlib.records.records import Record, Value
from windowlib.records.tallies import Edges


class Intervals(Protocol):
    """Intervals of event time of equal length, which are numbered (windowlib.windows.assigners.Grid)."""

    @property
    def every_ms(self) -> int:
        """The length of an interval."""

    @property
    def offset_ms(self) -> int:
        """The start of interval 0."""

    @property
    def farthest(self) -> int:
        """Only the intervals between this number and its negative count."""


class ByInterval(NamedTuple):
    """Some records by the number of their interval, as places in the columns, ascending.

    `others` are in no interval that counts. `end` is the place after the last record. `edges` is the tally of the
    records in the intervals.
    """

    end: int
    places: Mapping[int, Sequence[int]]
    others: Sequence[int]
    edges: Edges


class RecordColumns(Protocol):
    """Records in log order, with one element per record in each column."""

    @property
    def keys(self) -> Sequence[Hashable]:
        """The keys."""

    @property
    def values(self) -> Sequence[Value]:
        """The values."""

    @property
    def hashes(self) -> Sequence[int]:
        """The record hashes."""

    @property
    def records(self) -> Sequence[Record]:
        """The records themselves."""

    def by_interval(self, chosen: range, intervals: Intervals, *, first: int, cuts: bool) -> ByInterval:
        """Return the records at the places `chosen` by interval. Intervals before number `first` do not count.

        If `cuts`, the first record of the `others` is the last one that is returned.
        """
