"""The proof that a store refuses a second commit of one version."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs.lake.delta_tables import open_delta
from jobs.ledger import conditional_put
from windowlib.errors import LedgerError

if TYPE_CHECKING:
    from deltalake import DeltaTable


def test_a_disk_refuses_the_second_commit_and_the_proof_leaves_nothing(tmp_path: Path) -> None:
    conditional_put.prove_conditional_put(f"{tmp_path}/p/ledger")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_store_that_accepts_both_commits_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append = conditional_put._append

    def overwriting(table: "DeltaTable") -> None:
        append(open_delta(table.table_uri))  # as if the store had replaced the first commit

    monkeypatch.setattr(conditional_put, "_append", overwriting)
    with pytest.raises(LedgerError, match="accepted two commits of one version"):
        conditional_put.prove_conditional_put(f"{tmp_path}/p/ledger")
