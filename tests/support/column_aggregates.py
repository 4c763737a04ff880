"""Plays random operations on a column aggregate and on its record-at-a-time aggregate, and compares them."""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from windowlib.columnar.arrow import arrow_type, plain_values, struct_rows
from windowlib.errors import SpecError
from windowlib.functions.aggregates import Aggregate
from windowlib.kernels.aggregates.column_aggregate import AnyAggregate, Int64s, Positions
from windowlib.records.column_types import parse_type

INTEGERS = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}
DECIMALS = ("decimal(7,2)", "decimal(18,0)", "decimal(25,10)", "decimal(38,3)", "decimal(38,38)")
ORDERED = (*INTEGERS, *DECIMALS, "float", "double", "string", "binary", "boolean", "date", "timestamp", "timestamp_ntz")
ANY = (
    "bigint",
    "double",
    "string",
    "timestamp",
    "date",
    "decimal(25,10)",
    "array<bigint>",
    "struct<a:bigint,b:string>",
)


def feed_type(input_type: str) -> pa.DataType:
    """Return the Arrow type of an input column in feed form."""
    return {"timestamp": pa.int64(), "timestamp_ntz": pa.int64(), "date": pa.int32()}.get(
        input_type, arrow_type(parse_type(input_type))
    )


def integers(bits: int) -> Callable[[Random], int]:
    def draw(random: Random) -> int:
        size = random.randint(0, bits)
        return random.choice([random.randint(-(1 << size), (1 << size) - 1), 0, -(1 << bits), (1 << bits) - 1])

    return draw


def floats(input_type: str) -> Callable[[Random], float]:
    form = "f" if input_type == "float" else "d"
    size = struct.calcsize(form)

    def draw(random: Random) -> float:
        match random.randrange(8):
            case 0:
                (value,) = struct.unpack(form, random.randbytes(size))
                return float(value) if value == value else float("nan")  # noqa: PLR0124 - one NaN for all
            case 1:
                return random.choice([0.0, -0.0, 1.0, -1.0, 2.0**-149, -(2.0**-149), 2.0**127, -(2.0**127)])
            case 2 if random.random() < 0.2:
                return random.choice([float("nan"), float("inf"), float("-inf")])
            case 3 | 4:
                return float(random.randint(-1000, 1000))
            case 5:
                return random.choice([0.5, 0.25, 1 + 2.0**-20, 2.0**24 - 1])
            case _:
                value = random.uniform(-1, 1) * 10 ** random.randint(-6, 6)
                return float(struct.unpack(form, struct.pack(form, value))[0])

    return draw


def decimals(precision: int, scale: int) -> Callable[[Random], Decimal]:
    def draw(random: Random) -> Decimal:
        digits = random.randint(0, precision)
        number = random.choice([random.randint(-(10**digits) + 1, 10**digits - 1), 10**precision - 1])
        return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))

    return draw


DRAWERS: dict[str, Callable[[Random], Any]] = {
    **{name: integers(bits) for name, bits in INTEGERS.items()},
    "float": floats("float"),
    "double": floats("double"),
    "decimal(7,2)": decimals(7, 2),
    "decimal(18,0)": decimals(18, 0),
    "decimal(25,10)": decimals(25, 10),
    "decimal(38,3)": decimals(38, 3),
    "decimal(38,38)": decimals(38, 38),
    "string": lambda random: "".join(random.choices("ab\x00é\U0001f600\uffff", k=random.randrange(4))),
    "binary": lambda random: random.randbytes(random.randrange(3)),
    "boolean": lambda random: random.random() < 0.5,
    "date": lambda random: random.randint(-700_000, 2_900_000),
    "timestamp": lambda random: random.randint(-62_135_596_800_000_000, 253_402_300_799_999_999),
    "timestamp_ntz": lambda random: random.randint(-62_135_596_800_000_000, 253_402_300_799_999_999),
    "array<bigint>": lambda random: [random.choice([None, 1, 2]) for _ in range(random.randrange(3))],
    "struct<a:bigint,b:string>": lambda random: {"a": random.choice([None, 1]), "b": random.choice([None, "x"])},
}
"""Type -> a function that draws a value of it, in feed form."""


@dataclass
class Pair:
    """States as columns, and the same states of the record-at-a-time aggregate."""

    states: Any
    expected: list[tuple[Any, ...]]


@dataclass
class Player:
    """Applies random operations to both forms of one aggregate."""

    scalar: Aggregate
    columns: AnyAggregate
    input_type: str | None
    random: Random
    rank: int = 0

    def reduced(self, count: int, draw: Callable[[Random], Any] | None) -> Pair:
        random = self.random
        sizes = [random.choice([1, 1, 2, 3, random.randint(1, 12)]) for _ in range(count)]
        null_share = random.choice([0.0, 0.0, 0.3, 1.0])
        values = [None if draw is None or random.random() < null_share else draw(random) for _ in range(sum(sizes))]
        positions = self._positions(sizes)
        starts = np.cumsum([0, *sizes[:-1]], dtype=np.int64) if count else np.zeros(0, np.int64)
        column = None
        if self.input_type is not None:
            kind = feed_type(self.input_type)
            column = pa.array([None, *values], kind).slice(1) if random.random() < 0.3 else pa.array(values, kind)
            values = plain_values(column)
        ordered = Positions(
            np.array([one for one, _ in positions], np.int64), np.array([rank for _, rank in positions], np.int64)
        )
        expected, at = [], 0
        for size in sizes:
            accumulator = self.scalar.create()
            for row in range(at, at + size):
                accumulator = self.scalar.add(accumulator, values[row], positions[row])
            expected.append(self.state(accumulator))
            at += size
        return Pair(self.columns.reduce(column, ordered, starts), expected)

    def _positions(self, sizes: Sequence[int]) -> list[tuple[int, int]]:
        """Return unique positions, ascending inside each group only."""
        count = sum(sizes)
        ranks = list(range(self.rank, self.rank + count))
        self.rank += count
        self.random.shuffle(ranks)
        positions: list[tuple[int, int]] = []
        for size in sizes:
            chosen = [(rank // 7 * 1000 - 3000, rank) for rank in ranks[len(positions) : len(positions) + size]]
            positions.extend(sorted(chosen))
        return positions

    def merged(self, left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
        scalar = self.scalar
        return self.state(scalar.merge(scalar.from_state(left), scalar.from_state(right)))

    def state(self, accumulator: Any) -> tuple[Any, ...]:  # noqa: ANN401 - of any aggregate
        """Return the state of an accumulator, also if its total has too many digits to be stored."""
        try:
            return self.scalar.to_state(accumulator)
        except SpecError:
            count, total = accumulator
            return count, Decimal(total)

    def folded(self, states: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        total = self.scalar.to_state(self.scalar.create())
        for state in states:
            total = self.merged(total, state)
        return total

    def step(self, pair: Pair, draw: Callable[[Random], Any] | None) -> Pair:
        match self.random.randrange(3):
            case 0:
                return self.join(pair, draw)
            case 1:
                return self.combine(pair)
            case _:
                return self.select(pair)

    def join(self, pair: Pair, draw: Callable[[Random], Any] | None) -> Pair:
        random = self.random
        if random.random() < 0.3:
            other = self.reduced(random.randrange(4), draw)
            states = self.columns.concat([pair.states, self.columns.empty(2), other.states])
            return Pair(states, [*pair.expected, *[self.folded([])] * 2, *other.expected])
        other = self.reduced(len(pair.expected), draw)
        left, right = (pair, other) if random.random() < 0.5 else (other, pair)
        merged = [self.merged(*two) for two in zip(left.expected, right.expected, strict=True)]
        return Pair(self.columns.merge(left.states, right.states), merged)

    def combine(self, pair: Pair) -> Pair:
        random, count = self.random, len(pair.expected)
        if count and random.random() < 0.5:
            starts = sorted({0, *(random.randrange(count) for _ in range(random.randint(0, count)))})
            low, high = np.array(starts, np.int64), np.array([*starts[1:], count], np.int64)
            states = self.columns.reduce_states(pair.states, low)
        else:
            low, high = self._ranges(count)
            states = self.columns.ranges(pair.states, low, high)
        folded = [self.folded(pair.expected[i:j]) for i, j in zip(low.tolist(), high.tolist(), strict=True)]
        return Pair(states, folded)

    def select(self, pair: Pair) -> Pair:
        random, count = self.random, len(pair.expected)
        if random.random() < 0.5:
            indices = np.array([random.randrange(count) for _ in range(random.randint(0, count))], np.int64)
            return Pair(self.columns.take(pair.states, indices), [pair.expected[i] for i in indices])
        try:
            stored = pa.array(self.columns.to_columns(pair.states))
        except SpecError:  # a total of more than 38 digits
            return pair
        first = random.randint(0, min(1, count))
        return Pair(self.columns.from_columns(stored.slice(first)), pair.expected[first:])

    def _ranges(self, count: int) -> tuple[Int64s, Int64s]:
        random = self.random
        low: list[int] = []
        high: list[int] = []
        for _ in range(random.randint(0, 2)):
            ends = [sorted(random.randint(0, count) for _ in range(4)) for _ in range(2)]
            low.extend(map(min, *ends))
            high.extend(map(max, *ends))
        return np.array(low, np.int64), np.array(high, np.int64)

    def check(self, pair: Pair) -> None:
        names = [name for name, _ in self.scalar.state_columns]
        kind = pa.struct([(name, arrow_type(parse_type(text))) for name, text in self.scalar.state_columns])
        assert len(pair.states) == len(pair.expected)
        try:
            wanted = pa.array([dict(zip(names, state, strict=True)) for state in pair.expected], kind)
        except pa.ArrowInvalid:  # a total of more than 38 digits
            with pytest.raises(SpecError, match=r"does not fit decimal\(38,"):
                self.columns.to_columns(pair.states)
        else:
            stored = self.columns.to_columns(pair.states)
            stored.validate(full=True)
            assert stored.type == kind
            assert repr(struct_rows(stored)) == repr(struct_rows(wanted))
        output = arrow_type(parse_type(self.scalar.output_type))
        results, text = self.scalar_results(pair)
        if text is not None:
            with pytest.raises(SpecError) as raised:
                self.columns.results(pair.states)
            assert str(raised.value) == text
            return
        got = self.columns.results(pair.states)
        got.validate(full=True)
        assert got.type == output
        assert repr(plain_values(got)) == repr(plain_values(pa.array(results, output)))

    def scalar_results(self, pair: Pair) -> tuple[list[Any], str | None]:
        """Return the results of the record-at-a-time aggregate, and the text of its error."""
        try:
            return [self.scalar.result(self.scalar.from_state(state)) for state in pair.expected], None
        except SpecError as error:
            return [], str(error)


def play(player: Player, draw: Callable[[Random], Any] | None, *, groups: int = 9) -> None:
    """Reduce random rows of less than `groups` groups, apply random operations, and check after each."""
    pair = player.reduced(player.random.randrange(groups), draw)
    player.check(pair)
    for _ in range(player.random.randrange(6)):
        pair = player.step(pair, draw)
        player.check(pair)
