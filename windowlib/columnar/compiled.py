"""When a process hashes with compiled loops (`hash_loops`), and when with numpy (`xxhash`). Both give the same hashes.

The extra `fast` installs numba. A compiled loop needs 0.25 ns for a word, where numpy needs 3.8 ns. But a process needs
0.6 s to load numba and the loops, so a small replay is faster without them. A process loads them when numpy has hashed
for as long as loading takes. So hashing takes at most twice the time of the better way, however much is to come.
"""

import logging
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Final

import numpy as np

from windowlib.records.xxh64 import SEED, hash_bytes, hash_long

AFTER_WORDS: Final = 150_000_000
"""numpy hashes so many words in the time that loading numba and the loops takes."""

logger = logging.getLogger(__name__)


def load_loops() -> ModuleType | None:
    """Load the loops; None if numba is not installed or switched off (`NUMBA_DISABLE_JIT`), or cannot be used here.

    Loops that hash a word or a text otherwise than `windowlib.records.xxh64` are not used.
    """
    try:
        if import_module("numba").config.DISABLE_JIT:
            return None
        loops = import_module("windowlib.columnar.hash_loops")
        is_right = _hashes_rightly(loops)
    except ModuleNotFoundError:
        return None
    except Exception as error:  # noqa: BLE001 - numba and LLVM raise errors of many kinds; without them replays are slower
        logger.warning("numba cannot compile the hash loops, so numpy hashes: %s", error)
        return None
    if not is_right:
        logger.warning("the hash loops that numba compiled give other hashes than the definition, so numpy hashes")
        return None
    return loops


def _hashes_rightly(loops: ModuleType) -> bool:
    words = np.arange(3, dtype=np.uint64)
    text = bytes(range(45))
    hashes, folded, seeded, spans = (np.ones(count, np.uint64) for count in (3, 3, 3, 1))
    loops.hash_words(words, np.uint64(SEED), hashes)
    loops.fold_words(words, np.uint64(SEED), folded)
    loops.hash_seeded_words(words, words, seeded)
    one_span = np.frombuffer(text, np.uint8), np.zeros(1, np.uint64), np.full(1, len(text), np.uint64)
    loops.hash_spans(one_span, np.uint64(SEED), spans)
    cells = np.zeros((2, 2), np.uint64)
    loops.fold_cells(np.array([5, 3, 6], np.uint64), np.array([1, 0, 1], np.uint64), cells)
    return (
        hashes.tolist() == [hash_long(word, SEED) for word in range(3)]
        and folded.tolist() == [1 ^ hash_long(word, SEED) for word in range(3)]
        and seeded.tolist() == [hash_long(word, word) for word in range(3)]
        and spans.tolist() == [hash_bytes(text, SEED)]
        and cells.tolist() == [[3, 5 ^ 6], [3, 5 + 6]]
    )


class CompiledLoops:
    """The compiled loops of a process, or None until they are worth loading."""

    def __init__(self, *, after_words: int = AFTER_WORDS, load: Callable[[], ModuleType | None] = load_loops) -> None:
        """Start without loops.

        Args:
            after_words: how many words numpy hashes before the loops are loaded.
            load: loads the loops, or returns None where they cannot be used.
        """
        self.after_words = after_words
        self._load = load
        self._words = 0
        self._loops: ModuleType | None = None
        self._is_asked = False

    def for_words(self, words: int) -> ModuleType | None:
        """Return the loops to hash so many words with; None if numpy should hash them."""
        if not self._is_asked:
            self._words += words
            if self._words > self.after_words:
                self._is_asked = True
                self._loops = self._load()
        return self._loops


PROCESS: Final = CompiledLoops()
"""The loops of this process. A forked process inherits them."""
