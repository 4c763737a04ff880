"""The compiled loops of `hash_loops`, stored as machine code, so that a process loads them without numba.

numba needs 0.6 s of a process to load compiled loops, and 2 s to compile them. llvmlite, on which numba is built, loads
the stored machine code in 0.1 s. `make setup` stores it. A process that finds none that fits compiles and stores it.
The name of the file has a hash of the source, of the version of llvmlite and of the processor. The file begins with the
digest of the rest, so damaged machine code is never called.
"""

import ctypes
import os
import pkgutil
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, TypeAlias

import llvmlite
import llvmlite.binding as llvm
import numpy as np
from numpy.typing import NDArray

Words: TypeAlias = NDArray[np.uint64]

_SOURCE: Final = "hash_loops.py"
_DIGEST_BYTES: Final = 32


class Loops:
    """The loops. Arrays are contiguous, and their words have 64 bits without sign; the last one is written to."""

    def __init__(self, code: bytes, machine: llvm.TargetMachine) -> None:
        """Load machine code into this process, where it stays."""
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()
        address, word = ctypes.c_void_p, ctypes.c_uint64
        self._hash_words = self._function("hash_words", address, word, word, address)
        self._hash_seeded_words = self._function("hash_seeded_words", address, word, address, address)
        self._hash_spans = self._function("hash_spans", address, address, address, word, word, address)
        self._place_words = self._function("place_words", address, word, word, word, address, address)

    def _function(self, name: str, *arguments: type) -> Any:  # noqa: ANN401 - ctypes has no type for a function
        return ctypes.CFUNCTYPE(None, *arguments)(self._engine.get_function_address(name))

    def hash_words(self, words: Words, seed: int, hashes: Words) -> None:
        """Write the hash of each word, all with one seed, to `hashes`."""
        count = _count(words, hashes)
        self._hash_words(_address(words), count, seed, _address(hashes))

    def hash_seeded_words(self, words: Words, seeds: Words, hashes: Words) -> None:
        """Write the hash of each word, each with its own seed, to `hashes`."""
        count = _count(words, seeds, hashes)
        self._hash_seeded_words(_address(words), count, _address(seeds), _address(hashes))

    def hash_spans(self, spans: tuple[NDArray[np.uint8], Words, Words], seed: int, hashes: Words) -> None:
        """Write the hash of each span of bytes to `hashes`. `spans` has the bytes, and the starts and lengths there."""
        data, starts, lengths = spans
        count = _count(starts, lengths, hashes)
        self._hash_spans(_address(data), _address(starts), _address(lengths), count, seed, _address(hashes))

    def place_words(self, words: Words, bits: tuple[int, int], placed: Words) -> None:
        """Write the words to `placed`, ordered by their bits from the first to before the second; equal ones stay."""
        first, end = bits
        places = np.zeros(1 << (end - first), np.uint64)
        count = _count(words, placed)
        self._place_words(_address(words), count, first, len(places), _address(places), _address(placed))


def _count(*columns: Words) -> int:
    """Return the length of columns of words; machine code would go beyond the end of a shorter one."""
    counts = {len(column) for column in columns}
    if len(counts) != 1 or any(column.dtype != np.uint64 for column in columns):
        raise ValueError(f"columns of words of one length are needed, not {[(c.dtype, len(c)) for c in columns]}")
    return counts.pop()


def _address(array: NDArray[Any]) -> int:
    if not array.flags.c_contiguous:
        raise ValueError("the elements of the array are not side by side")
    return int(array.ctypes.data)


def load(directories: tuple[Path, ...] | None = None) -> Loops:
    """Load the loops into this process.

    The machine code may be stored in the `directories`, the first one first.
    Raises ModuleNotFoundError: numba is needed, and is not installed.
    """
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    triple, cpu, features = llvm.get_process_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    target = llvm.Target.from_triple(triple)
    machine = target.create_target_machine(cpu=cpu, features=features, opt=3, jit=True)
    source = pkgutil.get_data(__package__, _SOURCE) or b""
    made_for = repr((source, llvmlite.__version__, triple, cpu, features))
    name = f"hash_loops.{sha256(made_for.encode()).hexdigest()[:16]}.bin"
    places = [directory / name for directory in (_directories() if directories is None else directories)]
    code = next(_stored(places), None)
    if code is None:
        from windowlib.columnar.hash_loops import machine_code

        code = machine_code(machine)
        _store(code, places)
    return Loops(code, machine)


def _directories() -> tuple[Path, ...]:
    """Return the directory of compiled modules, and the cache of a user with a home, for a package in an archive."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))  # noqa: PTH111 - needs no home
    own = Path(__file__).parent / "__pycache__"
    return (own, cache / "hindcast") if cache.is_absolute() else (own,)


def _stored(places: list[Path]) -> Iterator[bytes]:
    """Yield the machine code of files that are whole, and that only this user or root can write."""
    for place in places:
        try:
            with place.open("rb") as file:
                status = os.fstat(file.fileno())
                is_own = status.st_uid in {0, os.geteuid()} and not status.st_mode & 0o022
                content = file.read() if is_own else b""
        except OSError:
            continue
        if sha256(content[_DIGEST_BYTES:]).digest() == content[:_DIGEST_BYTES]:
            yield content[_DIGEST_BYTES:]


def _store(code: bytes, places: list[Path]) -> None:
    """Store the machine code in the first directory where this process may write, if there is one."""
    for place in places:
        half = place.with_name(f"{place.name}.{os.getpid()}")
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            half.touch(mode=0o644)  # whatever the umask: the file is code
            half.write_bytes(sha256(code).digest() + code)
            half.replace(place)
        except OSError:
            continue
        return
