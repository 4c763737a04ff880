"""Tests that use `each_way_to_hash` run twice: numpy hashes, and compiled loops hash."""

import pytest

from windowlib.columnar import xxhash
from windowlib.columnar.compiled import CompiledLoops, load_loops


@pytest.fixture(params=["numpy", "compiled"])
def each_way_to_hash(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "numpy":
        loops = CompiledLoops(load=lambda: None)
    else:
        assert load_loops() is not None
        loops = CompiledLoops(after_words=0)
    loops.for_words(1)
    monkeypatch.setattr(xxhash, "PROCESS", loops)
