"""Files that a person asked for: their permissions."""

import os
from pathlib import Path

import pytest

from jobs.new_file import write_new


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o027, 0o640)])
def test_a_new_file_has_the_permissions_of_the_umask(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        write_new(tmp_path / "suite.json", "{}")
        write_new(tmp_path / "suite.json", "{ }", replaces=True)
        assert os.umask(umask) == umask, "it stays what it was"
    finally:
        os.umask(before)
    assert (tmp_path / "suite.json").stat().st_mode & 0o777 == mode
    assert [path.name for path in tmp_path.iterdir()] == ["suite.json"]
