"""Errors of deltalake, Arrow and the file system become one error of ours."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from deltalake.exceptions import DeltaError

from jobs.lake import pinned_files
from jobs.lake.damage import log_errors, one_line, table_errors
from jobs.lake.delta_log import DeltaPlace
from tests.support.delta_logs import commits_of
from windowlib.errors import LogError, StoreError


class PanicException(BaseException):
    """Has the name of the class of a Rust panic, which the libraries do not export."""


def as_store_error(error: BaseException) -> StoreError:
    return StoreError(f"table t: {error}")


@pytest.mark.parametrize("error", [DeltaError("no log"), OSError("gone"), PanicException("index out of bounds")])
def test_an_error_of_a_library_becomes_the_given_error(error: BaseException) -> None:
    with pytest.raises(StoreError, match=f"table t: {error}"), table_errors(as_store_error):
        raise error


def test_an_error_of_ours_passes_unchanged() -> None:
    with pytest.raises(LogError, match="known"), table_errors(as_store_error):
        raise LogError("known")


def test_another_error_is_translated_only_if_the_caller_names_its_class() -> None:
    with pytest.raises(KeyError), table_errors(as_store_error):
        raise KeyError("x")
    with pytest.raises(StoreError, match="table t: 'x'"), table_errors(as_store_error, also=(KeyError,)):
        raise KeyError("x")


def test_a_log_that_may_not_be_read_is_not_damaged() -> None:
    """The number of the error is below the first line of its text."""
    cause = "Kernel error\n  ↳ Generic LocalFileSystem error\n  ↳ Permission denied (os error 13)"
    with pytest.raises(LogError) as told, log_errors("event_logs/x", "opening version latest"):
        raise DeltaError(cause)
    assert "opening version latest failed: Permission denied. Give this user the right to use it" in str(told.value)
    assert "damaged" not in str(told.value)


def test_a_log_below_a_directory_that_may_not_be_entered_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Defect: `hindcast status` ended with the error of one pipeline, and showed no other."""

    def refuse(path: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", refuse)
    with pytest.raises(LogError, match=r"log /x/log: opening version latest failed: Permission denied. Give this"):
        DeltaPlace(uri="/x/log").open()
    monkeypatch.setattr(pinned_files, "file_system", lambda uri: (SimpleNamespace(get_file_info=refuse), uri))
    with pytest.raises(LogError, match=r"event log /x/log: listing its files failed: Permission denied. Give this"):
        pinned_files._refuse_lost_files(Mock(uri="/x/log"), [Mock(path="part.parquet")])


def test_the_answer_of_a_store_is_told_by_its_code_and_message() -> None:
    """Defects: the answer repeats the session token, and of a log in a store, no reason was told."""
    answer = (
        '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>InvalidToken</Code><Message>It is malformed.</Message>'
        "<Token-0>canary</Token-0><HostId>x</HostId></Error>"
    )
    with pytest.raises(LogError) as told, log_errors("s3://b/x", "opening version latest"):
        raise DeltaError(f"Kernel error\n  ↳ 400 Bad Request\n  ↳ {answer}\n")
    assert "failed: Kernel error 400 Bad Request InvalidToken: It is malformed.. Check that the" in str(told.value)
    cut = DeltaError(answer.replace("</HostId></Error>", "").replace("<Message>It is malformed.</Message>", ""))
    assert one_line(cut) == "InvalidToken:"


@pytest.mark.parametrize(
    "protocol",
    [
        {"minReaderVersion": 4, "minWriterVersion": 8},
        {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": ["a-preview"],
            "writerFeatures": ["a-preview"],
        },
        {"minReaderVersion": 1, "minWriterVersion": 2},  # a TIMESTAMP_NTZ column needs a feature
    ],
)
def test_a_table_with_features_that_the_library_refuses_is_not_damaged(
    tmp_path: Path, protocol: Mapping[str, Any]
) -> None:
    write_deltalake(str(tmp_path), pa.table({"at": pa.array([0], pa.timestamp("us"))}))
    [commit] = commits_of(tmp_path)
    entries = [json.loads(line) for line in commit.read_text("utf-8").splitlines()]
    others = [entry for entry in entries if "protocol" not in entry]
    commit.write_text("\n".join(map(json.dumps, [{"protocol": protocol}, *others])), "utf-8")
    with pytest.raises(LogError, match="refuses the features of the table") as told:
        DeltaPlace(uri=str(tmp_path)).open()
    assert "damaged" not in str(told.value)
