"""Snapshots that an operator refuses to restore."""

import pytest

from tests.support.harness import window_harness
from windowlib.errors import CheckpointError
from windowlib.keyed.key_groups import key_group
from windowlib.keyed.snapshots import STATE_VERSION
from windowlib.keyed.timers import KeyGroupRange
from windowlib.testkit.contracts import LIST
from windowlib.windows.assigners import Tumbling
from windowlib.windows.spec import WindowSpec


def test_snapshots_of_another_version_or_of_other_key_groups_are_refused() -> None:
    spec = WindowSpec(assigner=Tumbling(size_ms=10), function=LIST)
    harness = window_harness(assigner=Tumbling(size_ms=10))
    harness.record("a", 1, at_ms=1)
    snapshot = harness.operator.snapshot()
    assert key_group("a") == 81
    with pytest.raises(CheckpointError, match=r"81.*\[0, 64\)"):
        spec.build(KeyGroupRange(0, 64)).restore(snapshot)
    spec.build(KeyGroupRange(64, 128)).restore(snapshot)
    broken = harness.operator.snapshot()
    broken.windows *= 2
    with pytest.raises(CheckpointError, match="twice"):
        spec.build().restore(broken)
    snapshot.version = 99
    with pytest.raises(CheckpointError, match=rf"version 99.*{STATE_VERSION}"):
        spec.build().restore(snapshot)
