"""Sessions by column equal sessions record by record, in any order of arrival and with any watermark."""

import time
from dataclasses import dataclass, field
from random import Random

import numpy as np
import pytest

from tests.support.fuzzing import chances
from windowlib.bounds import MAX_TIME_MS, MIN_TIME_MS
from windowlib.kernels import grouping
from windowlib.kernels.sessions import groups as session_groups
from windowlib.kernels.sessions.groups import Elements, Groups, group, open_from_ms


@dataclass
class Partial:
    start_ms: int
    end_ms: int
    members: list[int]
    state_window: int


@dataclass
class Sequential:
    """The rules of windowlib.windows.opening, for one key: elements arrive one by one."""

    lateness_ms: int
    open: list[Partial] = field(default_factory=list)
    closed: list[Partial] = field(default_factory=list)
    late: list[int] = field(default_factory=list)

    def close(self, watermark_ms: int) -> None:
        is_closed = [min(one.end_ms - 1 + self.lateness_ms, MAX_TIME_MS) <= watermark_ms for one in self.open]
        self.closed += [one for one, closes in zip(self.open, is_closed, strict=True) if closes]
        self.open = [one for one, closes in zip(self.open, is_closed, strict=True) if not closes]

    def arrive(self, number: int, bounds: tuple[int, int], watermark_ms: int) -> None:
        start_ms, end_ms = bounds
        self.close(watermark_ms)
        met = sorted(
            (one for one in self.open if one.start_ms <= end_ms and one.end_ms >= start_ms),
            key=lambda one: one.start_ms,
        )
        if not met and min(end_ms - 1 + self.lateness_ms, MAX_TIME_MS) <= watermark_ms:
            self.late.append(number)
            return
        joined = Partial(
            min([start_ms, *(one.start_ms for one in met)]),
            max([end_ms, *(one.end_ms for one in met)]),
            [*(member for one in met for member in one.members), number],
            met[0].state_window if met else number,
        )
        self.open = [one for one in self.open if one not in met] + [joined]


def random_log(random: Random, lateness_ms: int) -> tuple[Elements, list[int]]:
    """Return random elements and the watermark that each meets."""
    count, span, largest_gap = random.randrange(1, 40), random.choice([5, 20, 60, 200]), random.choice([1, 3, 8])
    is_fixed, delay = random.random() < 0.5, random.choice([0, 3, 10, 30])
    watermark, watermarks, starts, ends = MIN_TIME_MS, [], [], []
    base = random.choice([0, -1_000, 1_700_000_000_000])
    shifts = sorted(random.randrange(span) for _ in range(count))
    for at in shifts:
        start = base + at + random.randint(-delay, 2)
        starts.append(start)
        ends.append(start + (largest_gap if is_fixed else random.randint(1, largest_gap)))
        watermarks.append(watermark)
        if random.random() < 0.6:
            watermark = max(watermark, start - random.randrange(4), base + at - delay // 2)
        if random.random() < 0.01:
            watermark = random.choice([watermark, MAX_TIME_MS, MAX_TIME_MS - 1])
    key_code = [random.randrange(random.choice([1, 3])) for _ in range(count)]
    met = np.array(watermarks, dtype=np.int64)
    return (
        Elements(
            key_code=np.array(key_code, dtype=np.int64),
            start_ms=np.array(starts, dtype=np.int64),
            end_ms=np.array(ends, dtype=np.int64),
            open_from_ms=open_from_ms(met, lateness_ms),
        ),
        watermarks,
    )


def sequential(elements: Elements, watermarks: list[int], lateness_ms: int) -> tuple[list[Partial], list[int]]:
    """Return the sessions and the late elements."""
    keys = {key: Sequential(lateness_ms) for key in elements.key_code.tolist()}
    bounds = list(zip(elements.start_ms.tolist(), elements.end_ms.tolist(), strict=True))
    for number, key in enumerate(elements.key_code.tolist()):
        keys[key].arrive(number, bounds[number], watermarks[number])
    sessions = [one for key in sorted(keys) for one in [*keys[key].closed, *keys[key].open]]
    return sessions, sorted(number for one in keys.values() for number in one.late)


def members(groups: Groups) -> list[list[int]]:
    return [sorted(part.tolist()) for part in np.split(groups.order, groups.starts[1:])] if len(groups) else []


@pytest.mark.parametrize("packed_bits", [63, 45, 20, 4])
def test_sessions_by_column_equal_sessions_one_by_one(packed_bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouping, "PACKED_BITS", packed_bits)
    joined = 0
    for random in chances(600, among=4):
        lateness_ms = random.choice([0, 0, 1, 5, 40, MAX_TIME_MS])
        elements, watermarks = random_log(random, lateness_ms)
        expected, late = sequential(elements, watermarks, lateness_ms)
        groups = group(elements)
        assert groups.late.tolist() == late
        by_members = {tuple(sorted(one.members)): one for one in expected}
        assert sorted(map(tuple, members(groups))) == sorted(by_members)
        sources = session_groups.state_window_sources(groups, elements, np.arange(len(groups)))
        for place, numbers in enumerate(members(groups)):
            one = by_members[tuple(numbers)]
            assert (groups.start_ms[place], groups.end_ms[place]) == (one.start_ms, one.end_ms)
            assert groups.key_code[place] == elements.key_code[numbers[0]]
            assert sources[place] == one.state_window
        behind = np.flatnonzero(elements.end_ms < elements.open_from_ms)
        joined += len(behind) - len(late)
    assert joined > 50, "some records that are behind join an open session"


def test_records_in_descending_order_cost_no_more_than_others() -> None:
    """Each record extends the session to the left by one gap. A pass over all records for each step takes minutes."""
    count = 40_000
    start_ms = np.arange(count, 0, -1, dtype=np.int64) * 50
    watermark_ms = np.full(count, start_ms[0] - 1)
    watermark_ms[0] = MIN_TIME_MS
    elements = Elements(
        key_code=np.zeros(count, dtype=np.int64),
        start_ms=start_ms,
        end_ms=start_ms + 60,
        open_from_ms=open_from_ms(watermark_ms, 0),
    )
    began = time.process_time()
    groups = group(elements)
    assert time.process_time() - began < 2
    assert (len(groups), len(groups.late), groups.start_ms.tolist()) == (1, 0, [50])


@pytest.mark.parametrize("lateness_ms", [0, 1, 2, 3, 1_000, MAX_TIME_MS])
def test_a_session_is_open_from_its_least_end_on(lateness_ms: int) -> None:
    watermarks = [MIN_TIME_MS, MIN_TIME_MS + 1, -5, 0, 7, MAX_TIME_MS - 2, MAX_TIME_MS - 1, MAX_TIME_MS]
    least = open_from_ms(np.array(watermarks, dtype=np.int64), lateness_ms).tolist()
    for watermark_ms, least_ms in zip(watermarks, least, strict=True):
        for end_ms in (-(2**62), -1_001, -3, 0, 1, 5, 8, 9, 2**62):
            is_open = min(end_ms - 1 + lateness_ms, MAX_TIME_MS) > watermark_ms
            assert is_open == (end_ms >= least_ms), (watermark_ms, end_ms)
