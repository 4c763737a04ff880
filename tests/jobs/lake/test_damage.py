"""Errors of deltalake, Arrow and the file system become one error of ours."""

import pytest
from deltalake.exceptions import DeltaError

from jobs.lake.damage import log_errors, table_errors
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
