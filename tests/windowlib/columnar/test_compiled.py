"""A process loads compiled loops when they pay, and only loops that hash as the definition says."""

import logging
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import numba
import numpy as np
import pytest

from windowlib.columnar import compiled, hash_loops, xxhash
from windowlib.columnar.compiled import CompiledLoops, load_loops

LOOPS = ("hash_words", "fold_words", "hash_seeded_words", "hash_spans", "fold_cells")


def test_loops_are_loaded_once_when_numpy_has_hashed_enough_words() -> None:
    loaded: list[ModuleType] = []

    def load() -> ModuleType:
        loaded.append(hash_loops)
        return hash_loops

    loops = CompiledLoops(after_words=100, load=load)
    assert [loops.for_words(40) for _ in range(4)] == [None, None, hash_loops, hash_loops]
    assert len(loaded) == 1


def test_loops_that_cannot_be_loaded_are_asked_for_once() -> None:
    asked: list[int] = []
    loops = CompiledLoops(after_words=0, load=lambda: asked.append(1))
    assert [loops.for_words(1) for _ in range(3)] == [None, None, None]
    assert asked == [1]


def test_without_numba_numpy_hashes(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def missing(name: str) -> ModuleType:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(compiled, "import_module", missing)
    assert load_loops() is None
    assert not caplog.records


def test_numba_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)
    assert load_loops() is None


def test_a_failure_of_numba_is_logged(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def broken(name: str) -> ModuleType:
        if name == "numba":
            return cast("ModuleType", numba)
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr(compiled, "import_module", broken)
    with caplog.at_level(logging.WARNING):
        assert load_loops() is None
    assert "no locator available" in caplog.text


@pytest.mark.parametrize("name", LOOPS)
def test_loops_with_other_hashes_are_not_used(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    right = {one: getattr(hash_loops, one) for one in LOOPS}

    def wrong(*arguments: Any) -> None:  # noqa: ANN401 - those of any loop
        right[name](*arguments)
        arguments[-1].flat[-1] ^= np.uint64(1)

    other = cast("ModuleType", SimpleNamespace(**{**right, name: wrong}))
    monkeypatch.setattr(compiled, "import_module", lambda asked: numba if asked == "numba" else other)
    with caplog.at_level(logging.WARNING):
        assert load_loops() is None
    assert "other hashes than the definition" in caplog.text


def test_words_and_strings_count_as_what_they_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []

    class Counting(CompiledLoops):
        def for_words(self, words: int) -> ModuleType | None:
            counted.append(words)
            return None

    monkeypatch.setattr(xxhash, "PROCESS", Counting())
    xxhash.hash_words(np.arange(7, dtype=np.uint64), 1)
    data = np.zeros(9, np.uint8)
    xxhash.hash_spans(xxhash.Spans(data, np.arange(4), np.full(4, 5)), 1)
    assert counted[0] == 7
    assert counted[1] > 4


def test_words_with_gaps_and_words_out_of_line_have_the_same_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As columns of a table of words, broadcast words, read-only words, and words at an odd address."""
    rng = np.random.default_rng(7)
    table = rng.integers(0, 1 << 63, (50, 3)).astype(np.uint64)
    odd = np.frombuffer(b"x" + table[:, 0].tobytes(), np.uint8)[1:].view(np.uint64)
    for words in (table[:, 1], np.broadcast_to(table[0, 0], 20), odd, table[::2, 0][:0], table):
        for seed in (5, words):
            monkeypatch.setattr(xxhash, "PROCESS", CompiledLoops(load=lambda: None))
            expected = xxhash.hash_words(words, seed)
            monkeypatch.setattr(xxhash, "PROCESS", CompiledLoops(after_words=-1))
            assert (xxhash.hash_words(words, seed) == expected).all()
