"""The commands after an upgrade that computes other rows: they tell how the chain goes on."""

import pytest

from jobs.engine import fingerprints
from tests.jobs.cli.conftest import Shell
from windowlib.keyed.snapshots import STATE_VERSION

RANGE = ("--from", "2024-01-01", "--to", "2024-01-03")


def test_each_command_tells_how_a_chain_of_an_earlier_version_goes_on(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shell("run", "sales", *RANGE) == 0, shell.err
    monkeypatch.setattr(fingerprints, "STATE_VERSION", STATE_VERSION + 1)
    assert shell("verify", "sales") == 0, shell.out
    assert "note: the published chain of pipeline sales is spec" in shell.out
    assert "or go on with the pipeline file: `hindcast adopt sales`" in shell.out
    assert shell("status", "sales") == 0
    assert "The chain goes on with the file after `hindcast adopt sales`" in shell.out
    assert shell("run", "sales", "--from", "2024-01-03", "--to", "2024-01-04") == 1
    assert "or go on with the new one: `hindcast adopt sales`" in shell.err
