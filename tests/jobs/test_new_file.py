"""Files that a person asked for: their permissions, and file systems without hard links."""

import errno
import os
from pathlib import Path

import pytest

from jobs.new_file import write_new
from windowlib.errors import RequestError


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


def test_a_file_system_needs_no_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Defect: in a shared folder of a virtual machine, `hindcast init` was refused: Operation not permitted."""

    def link(*_places: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", link)
    write_new(tmp_path / "new", "1")
    write_new(tmp_path / "old", "2", replaces=True)
    write_new(tmp_path / "old", "3", replaces=True)
    with pytest.raises(RequestError, match="old exists and is not overwritten"):
        write_new(tmp_path / "old", "4")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"new": "1", "old": "3"}
