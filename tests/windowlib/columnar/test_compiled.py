"""A process loads compiled loops when they pay, and only loops that hash as the definition says."""

import logging
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn, cast

import numpy as np
import pytest

from tests.support.places import ROOT
from windowlib.columnar import compiled, stored_loops, xxhash
from windowlib.columnar.compiled import SWITCH, CompiledLoops, load_loops
from windowlib.columnar.stored_loops import Loops

LOOPS = ("hash_words", "hash_seeded_words", "hash_spans", "place_words")
RIGHT = stored_loops.load()


def test_loops_are_loaded_once_when_numpy_has_hashed_enough_words() -> None:
    loaded: list[Loops] = []

    def load() -> Loops:
        loaded.append(RIGHT)
        return RIGHT

    loops = CompiledLoops(after_words=100, load=load)
    assert [loops.for_words(40) for _ in range(4)] == [None, None, RIGHT, RIGHT]
    assert len(loaded) == 1


def test_loops_that_cannot_be_loaded_are_asked_for_once() -> None:
    asked: list[int] = []
    loops = CompiledLoops(after_words=0, load=lambda: asked.append(1))
    assert [loops.for_words(1) for _ in range(3)] == [None, None, None]
    assert asked == [1]


def test_without_llvmlite_numpy_hashes(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def missing(name: str) -> ModuleType:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(compiled, "import_module", missing)
    assert load_loops() is None
    assert not caplog.records


def test_loops_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "1")
    assert load_loops() is None


def test_a_failure_of_llvm_is_logged(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def load() -> NoReturn:
        raise RuntimeError("LLVM has no such processor")

    monkeypatch.setattr(stored_loops, "load", load)
    with caplog.at_level(logging.WARNING):
        assert load_loops() is None
    assert "LLVM has no such processor" in caplog.text


@pytest.mark.parametrize("name", LOOPS)
def test_loops_with_other_hashes_are_not_used(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    right = {loop: getattr(RIGHT, loop) for loop in LOOPS}

    def wrong(*arguments: Any) -> None:  # noqa: ANN401 - those of any loop
        right[name](*arguments)
        arguments[-1].flat[-1] ^= np.uint64(1)

    monkeypatch.setattr(stored_loops, "load", lambda: SimpleNamespace(**{**right, name: wrong}))
    with caplog.at_level(logging.WARNING):
        assert load_loops() is None
    assert "other hashes than the definition" in caplog.text


def hashes_of(loops: Loops) -> list[int]:
    """Return some hashes."""
    words = np.arange(5, dtype=np.uint64)
    hashes = np.zeros(5, np.uint64)
    loops.hash_words(words, 7, hashes)
    return hashes.tolist()


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the loops, which numba has compiled for it."""
    directory = tmp_path_factory.mktemp("loops")
    assert hashes_of(stored_loops.load((directory,))) == hashes_of(RIGHT)
    return directory


def test_stored_loops_are_loaded_without_numba(stored: Path) -> None:
    code = (
        "import sys; from pathlib import Path; sys.modules['numba'] = None\n"
        "from windowlib.columnar import stored_loops\n"
        f"print(stored_loops.load((Path({str(stored)!r}),)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "Loops object" in done.stdout, done.stderr


def test_machine_code_that_is_damaged_or_that_others_can_write_is_replaced(
    stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []
    whole = next(stored.iterdir()).read_bytes()[32:]

    def machine_code(machine: object) -> bytes:
        made.append(machine)
        return whole

    compiler = SimpleNamespace(machine_code=machine_code)
    monkeypatch.setitem(sys.modules, "windowlib.columnar.hash_loops", cast("ModuleType", compiler))
    first, second = tmp_path / "no" / "directory", tmp_path / "cache"
    first.parent.write_bytes(b"a file, so that nothing can be stored below it")
    expected = hashes_of(RIGHT)
    before = os.umask(0o002)  # others of the group may write new files
    assert hashes_of(stored_loops.load((first, second))) == expected
    os.umask(before)
    (file,) = second.iterdir()
    content = file.read_bytes()
    for wrong in (b"", content[:-1], content[:100] + bytes([content[100] ^ 1]) + content[101:], content[1:]):
        file.write_bytes(wrong)
        assert hashes_of(stored_loops.load((first, second))) == expected
        assert file.read_bytes() == content
    assert len(made) == 5
    assert hashes_of(stored_loops.load((first, second))) == expected
    assert len(made) == 5, "a whole file is used"
    assert file.stat().st_mode & 0o777 == 0o644
    file.chmod(0o664)
    assert hashes_of(stored_loops.load((first, second))) == expected
    assert len(made) == 6, "others may have written it"
    if os.geteuid() == 0:
        os.chown(file, 4711, -1)
        assert hashes_of(stored_loops.load((first, second))) == expected
        assert len(made) == 7


@pytest.mark.parametrize(
    ("words", "hashes"),
    [
        (np.zeros(3, np.uint64), np.zeros(2, np.uint64)),
        (np.zeros(3, np.uint32), np.zeros(3, np.uint64)),
        (np.zeros(6, np.uint64)[::2], np.zeros(3, np.uint64)),
    ],
)
def test_arrays_that_the_loops_cannot_read_are_refused(words: Any, hashes: Any) -> None:  # noqa: ANN401 - wrong ones
    with pytest.raises(ValueError, match=r"columns of words|side by side"):
        RIGHT.hash_words(words, 1, hashes)


def test_words_and_strings_count_as_what_they_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []

    class Counting(CompiledLoops):
        def for_words(self, words: int) -> Loops | None:
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
    for words in (table[:, 1], np.broadcast_to(table[0, 0], 20), odd, table[::2, 0][:0]):
        for seed in (5, words):
            monkeypatch.setattr(xxhash, "PROCESS", CompiledLoops(load=lambda: None))
            expected = xxhash.hash_words(words, seed)
            monkeypatch.setattr(xxhash, "PROCESS", CompiledLoops(after_words=-1))
            assert (xxhash.hash_words(words, seed) == expected).all()
