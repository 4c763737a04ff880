"""When a process hashes with compiled loops (`stored_loops`), and when with numpy (`xxhash`). The hashes are the same.

The extra `fast` installs numba and llvmlite. A compiled loop needs 0.25 ns for a word, where numpy needs 3.8 ns. But a
process needs 0.03 s to load llvmlite and the loops, so a small replay is faster without them. A process loads them when
numpy has hashed for as long as loading takes. So hashing takes at most twice the time of the better way, however much
is to come. Sorted words count as hashed ones: the loops save as much time for each (`kernels.grouping.sorted_words`).
"""

import logging
import os
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Final

import numpy as np

from windowlib.records.xxh64 import SEED, hash_bytes, hash_long

if TYPE_CHECKING:
    from windowlib.columnar.stored_loops import Loops

AFTER_WORDS: Final = 8_000_000
"""numpy hashes so many words in the time that loading the loops takes."""
SWITCH: Final = "NUMBA_DISABLE_JIT"
"""With the value 1, this variable of the environment switches compiled loops off, as it does for numba."""

logger = logging.getLogger(__name__)


def load_loops() -> "Loops | None":
    """Load the loops; None if numba is not installed or switched off, or cannot be used here.

    Loops that hash a word or a text otherwise than `windowlib.records.xxh64` are not used.
    """
    if os.environ.get(SWITCH, "0") != "0":
        return None
    try:
        loops: Loops = import_module("windowlib.columnar.stored_loops").load()
        is_right = _hashes_rightly(loops)
    except ModuleNotFoundError:
        return None
    except Exception as error:  # noqa: BLE001 - numba and LLVM raise errors of many kinds; without them replays are slower
        logger.warning("the hash loops cannot be compiled or loaded, so numpy hashes: %s", error)
        return None
    if not is_right:
        logger.warning("the compiled hash loops give other hashes than the definition, so numpy hashes")
        return None
    return loops


def _hashes_rightly(loops: "Loops") -> bool:
    words = np.arange(3, dtype=np.uint64)
    text = bytes(range(45))
    hashes, seeded, spans = (np.ones(count, np.uint64) for count in (3, 3, 1))
    loops.hash_words(words, SEED, hashes)
    loops.hash_seeded_words(words, words, seeded)
    one_span = np.frombuffer(text, np.uint8), np.zeros(1, np.uint64), np.full(1, len(text), np.uint64)
    loops.hash_spans(one_span, SEED, spans)
    placed = np.empty(4, np.uint64)
    loops.place_words(np.array([9, 4, 7, 5], np.uint64), (1, 3), placed)
    return (
        hashes.tolist() == [hash_long(word, SEED) for word in range(3)]
        and seeded.tolist() == [hash_long(word, word) for word in range(3)]
        and spans.tolist() == [hash_bytes(text, SEED)]
        and placed.tolist() == [9, 4, 5, 7]
    )


class CompiledLoops:
    """The compiled loops of a process, or None until they are worth loading."""

    def __init__(self, *, after_words: int = AFTER_WORDS, load: Callable[[], "Loops | None"] = load_loops) -> None:
        """Start without loops.

        numpy hashes `after_words` words before the loops are loaded. `load` returns None where they cannot be used.
        """
        self.after_words = after_words
        self._load = load
        self._words = 0
        self._loops: Loops | None = None
        self._is_asked = False

    def for_words(self, words: int) -> "Loops | None":
        """Return the loops to hash or sort so many words with; None if numpy should do it."""
        if not self._is_asked:
            self._words += words
            if self._words > self.after_words:
                self._is_asked = True
                self._loops = self._load()
        return self._loops


PROCESS: Final = CompiledLoops()
"""The loops of this process. A forked process inherits them."""
