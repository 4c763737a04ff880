"""Grouping: codes of pairs."""

import numpy as np
import pytest

from tests.support.fuzzing import seeds
from windowlib.columnar.compiled import CompiledLoops
from windowlib.kernels import grouping
from windowlib.kernels.grouping import PairCodes, counts_before, sorted_words, window_codes


@pytest.mark.fuzz
def test_counts_before_bounds_are_those_of_a_binary_search() -> None:
    for seed in seeds(200):
        random = np.random.default_rng(seed)
        values = np.sort(random.integers(-20, 20, random.integers(0, 30)))
        bounds = np.sort(random.integers(-25, 25, random.integers(1, 60)))
        assert counts_before(values, bounds).tolist() == np.searchsorted(values, bounds, side="left").tolist()


@pytest.mark.fuzz
def test_codes_are_ordered_as_pairs_and_fit_64_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in seeds(200):
        random = np.random.default_rng(seed)
        monkeypatch.setattr(grouping, "PACKED_BITS", int(random.choice([63, 5])))
        reach, keys = int(random.choice([3, 1 << 40, 1 << 61])), int(random.choice([2, 5, 1 << 31]))
        key_code = np.sort(random.integers(0, keys, random.integers(1, 30)))
        number = random.integers(-reach, reach, len(key_code))
        pairs = [*zip(key_code.tolist(), number.tolist(), strict=True)]
        ordered = {pair: place for place, pair in enumerate(sorted(set(pairs)))}
        codes = PairCodes.of(number, keys=keys).codes(key_code, number)
        for found in (codes, window_codes(key_code, number - number.min())):
            distinct = np.unique(found)
            assert np.searchsorted(distinct, found).tolist() == [ordered[pair] for pair in pairs], seed
        of_pairs = PairCodes.of(number, keys=keys)
        assert [column.tolist() for column in of_pairs.pairs(codes)] == [key_code.tolist(), number.tolist()], seed
        least = int(number.min())
        key, bound = int(key_code[0]), int(random.integers(least, reach + 1))
        [end] = of_pairs.codes(np.array([key]), np.array([bound]))
        assert (codes < end).sum() == sum(pair < (key, bound) for pair in pairs), seed


@pytest.mark.fuzz
@pytest.mark.parametrize("after_words", [-1, 1 << 62], ids=["compiled", "numpy"])
def test_words_are_sorted_as_numpy_sorts_them(after_words: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled loops are used for few words, too, and also if the words fill 63 bits, or are all 0."""
    monkeypatch.setattr(grouping, "PROCESS", CompiledLoops(after_words=after_words))
    monkeypatch.setattr(grouping, "SORTED_WORDS", 1)
    for seed in seeds(200):
        random = np.random.default_rng(seed)
        monkeypatch.setattr(grouping, "DIGIT_BITS", int(random.integers(1, 11)))
        count, row_bits = int(random.integers(0, 3_000)), int(random.choice([0, 12, 20]))
        words = random.integers(0, 1 << int(random.integers(0, 64 - row_bits)), count) << row_bits
        words |= np.arange(count) if row_bits else 0
        expected = np.sort(words).tolist()
        assert sorted_words(words, from_bit=row_bits).tolist() == expected, seed
