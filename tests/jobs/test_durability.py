"""Waiting for the disk: the setting, the errors, the order. tests/e2e/test_every_write.py tries whole commands."""

import errno
import os
from functools import partial
from pathlib import Path
from threading import Barrier

import pytest

from jobs.durability import SETTING, durable_files, sync_files, waits_for_disk
from jobs.storage import write_bytes
from windowlib.errors import RequestError, StoreError


def test_a_place_on_this_machine_is_awaited_unless_the_setting_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SETTING, raising=False)
    assert waits_for_disk("/lake/sales")
    assert not waits_for_disk("s3://lake/sales")
    monkeypatch.setenv(SETTING, "off")
    assert not waits_for_disk("/lake/sales")
    monkeypatch.setenv(SETTING, "no")
    with pytest.raises(RequestError, match="HINDCAST_FSYNC must be on or off, found 'no'"):
        waits_for_disk("/lake/sales")


@pytest.mark.parametrize(("code", "is_raised"), [(errno.EIO, True), (errno.ENOSPC, True), (errno.EINVAL, False)])
def test_an_error_of_the_disk_names_the_path_and_a_file_system_without_fsync_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, *, is_raised: bool
) -> None:
    def failing(_descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", failing)
    if not is_raised:
        sync_files([tmp_path])
        return
    with pytest.raises(OSError, match=str(tmp_path)) as raised:
        sync_files([tmp_path])
    assert raised.value.errno == code


def test_the_content_is_awaited_before_the_file_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    awaited: list[tuple[str, bool]] = []
    place = tmp_path / "head.json"
    monkeypatch.setenv(SETTING, "on")
    monkeypatch.setattr(
        os,
        "fsync",
        lambda descriptor: awaited.append((str(Path(f"/proc/self/fd/{descriptor}").readlink()), place.exists())),
    )
    with durable_files() as put:
        put(str(place), lambda hidden: write_bytes(hidden, b"x"))
    [(hidden, was_there), *directories] = awaited
    assert (Path(hidden).parent, was_there) == (tmp_path, False)
    assert {*directories} == {(str(place), True) for place in (tmp_path, tmp_path.parent, tmp_path.parent.parent)}
    assert place.read_bytes() == b"x"


def test_files_are_awaited_together_and_an_error_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Defect: each of the files of an upstream was awaited alone, which took 3 ms on a disk."""
    monkeypatch.setenv(SETTING, "on")
    together = Barrier(4, timeout=20)
    waited = list[int]()

    def fsync(descriptor: int) -> None:
        if not Path(f"/proc/self/fd/{descriptor}").readlink().is_dir():
            waited.append(together.wait())

    monkeypatch.setattr(os, "fsync", fsync)
    names = [*"abcd"]
    with durable_files() as put:
        for name in names:
            put(str(tmp_path / name), partial(write_bytes, content=name.encode()))
        assert not (tmp_path / "a").exists()
    assert sorted(waited) == [0, 1, 2, 3]
    assert sorted(path.name for path in tmp_path.iterdir()) == names

    def failing(_descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", failing)
    with (
        pytest.raises(StoreError, match=rf"has not confirmed it .*{tmp_path}.*Check that disk"),
        durable_files() as put,
    ):
        put(str(tmp_path / "e"), partial(write_bytes, content=b"e"))
    assert sorted(path.name for path in tmp_path.iterdir()) == names
