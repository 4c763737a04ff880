"""Paths in a lake have checked names, stay below the lake, and are read correctly by the Delta library."""

import contextlib
import os
import random
import select
import socket
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.fs as pafs
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.lake import lake
from jobs.lake.lake import Lake
from jobs.ledger.ledger import Ledger
from jobs.pipeline.files import load_pipeline
from tests.support.fake_replay import PIPELINE, sales
from tests.support.fuzzing import seeds
from windowlib.errors import LedgerError, RequestError, SpecError

if TYPE_CHECKING:
    from collections.abc import Callable


def test_tables_and_logs_are_below_the_lake_unless_the_log_names_its_own_place() -> None:
    assert Lake(root="/lake").table("flights", "window_outputs") == "/lake/flights/window_outputs"
    assert Lake(root="s3://bucket/lake/").ledger("flights") == "s3://bucket/lake/flights/ledger"
    assert Lake(root="/lake").event_log(sales()) == "/lake/event_logs/sales"
    for own in ("/elsewhere/sales", "s3://other/sales"):
        assert Lake(root="/lake").event_log(sales(PIPELINE.replace("event_logs/sales", own))) == own


def test_a_file_uri_is_the_path_that_it_names() -> None:
    assert Lake(root="file:///lake/a%20b").root == "/lake/a b"
    assert Lake(root="file:///lake").is_local


@pytest.mark.parametrize("name", ["..", "../x", "a/b", "", "A", "a b", "a\n", "é", "-x", "x" * 200, "%2e%2e", "a\0"])
def test_a_name_with_other_characters_is_refused(name: str) -> None:
    with pytest.raises(SpecError, match="is not a name of a pipeline or table"):
        Lake(root="/lake").table(name, "window_outputs")
    with pytest.raises(SpecError, match="is not a name of a pipeline or table"):
        Lake(root="/lake").table("flights", name)


@pytest.mark.parametrize("marker", ["../x", "a/../../x", "/etc/passwd", "s3://x/y"])
def test_a_marker_outside_the_lake_is_refused(marker: str) -> None:
    with pytest.raises(SpecError, match="below the lake"):
        Lake(root="/lake").below(marker)


@pytest.mark.parametrize(
    "root",
    [
        *("", "  ", "a\0b", "a\nb", "a\x1b[2J", "\udcff", "ftp://host/x", "http://host/x", "memory://x", "://", "://x"),
        *("s3:/x", "s3://", "s3:///x", "file:relative", "file://host/x", "FTP://h/x", "my:lake", "s3://[x/y"),
        *("/a[b]", "/a]b", "/a|b", "/a^b", "/a%20b", "/a\\b", f"/{'x' * 256}/b", "file:///a%5Bb", "/a%2e%2e/b"),
    ],
)
def test_a_root_that_would_be_misread_is_refused(root: str) -> None:
    with pytest.raises(SpecError, match="the lake root"):
        Lake(root=root)
    table = PIPELINE.replace("event_logs/sales", '"ftp://host/sales"')
    with pytest.raises(SpecError, match=r"log\.table must be a directory or a URI, found 'ftp://host/sales'; allowed"):
        Lake(root="/lake").event_log(sales(table))


@pytest.mark.parametrize(
    "uri",
    [
        "s3://AKIDEXAMPLE:SeCrEt@bucket/lake",
        "s3a://AKIDEXAMPLE:a/SeCrEt+b@bucket/lake",
        "S3://AKIDEXAMPLE:a@SeCrEt@bucket",
        "s3:AKIDEXAMPLE:SeCrEt@bucket",
        "AKIDEXAMPLE:SeCrEt@bucket/lake",
        "gs://user:SeCrEt@bucket/lake",
        "hdfs://user:SeCrEt@namenode:8020/lake",
        "http://user:SeCrEt@host/lake",
        f"s3://AKIDEXAMPLE:SeCrEt@bucket/{'x' * 3_000}",
    ],
)
def test_credentials_in_a_uri_are_refused_and_not_repeated(uri: str, tmp_path: Path) -> None:
    (tmp_path / "sales.yaml").write_text(PIPELINE.replace("event_logs/sales", f'"{uri}"'))
    ways: list[Callable[[], object]] = [
        lambda: Lake(root=uri),
        lambda: Lake(root="/lake").event_log(load_pipeline("sales", tmp_path)),
        lambda: Lake(root="/lake").below(uri),
    ]
    for way in ways if "://" in uri else ways[:2]:  # a marker without a scheme is a path
        with pytest.raises(SpecError, match=r"\*\*\*@") as caught:
            way()
        shown = "".join(traceback.format_exception(caught.value))
        assert "SeCrEt" not in shown
        assert "AKIDEXAMPLE" not in shown
    for way in ways[: 1 if len(uri) > 2_000 else 2]:
        with pytest.raises(SpecError, match="has credentials; write the place alone and set them as variables"):
            way()


@pytest.mark.parametrize(
    "uri", ["abfss://container@account.dfs.core.windows.net/lake", "hdfs://namenode:8020/user/a@b", "gs://bucket/a:b@c"]
)
def test_an_at_sign_that_ends_no_credentials_is_part_of_a_place(uri: str) -> None:
    assert Lake(root=uri).root == uri


def test_a_missing_lake_is_not_an_empty_lake(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    Lake(root=str(tmp_path)).check(must_exist=True)
    Lake(root=str(tmp_path / "none")).check(must_exist=False)
    expected = {
        "none": "does not exist",
        "file": "is not a directory",
        "file/x": "is not a directory",
        "loop": "cannot be read: Too many levels",
    }
    for name, problem in expected.items():
        with pytest.raises(RequestError, match=f"{problem}.*--lake"):
            Lake(root=str(tmp_path / name)).check(must_exist=True)
    with pytest.raises(RequestError, match="is not a directory"):
        Lake(root=str(tmp_path / "file")).check(must_exist=False)


def test_a_missing_bucket_is_not_an_empty_lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Defect: commands that only read told that the first run writes into it."""
    store = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    monkeypatch.setattr(lake, "file_system", lambda uri: (store, uri.partition("://")[2]))
    place = Lake(root="s3://bucket/lake")
    with pytest.raises(RequestError, match=r"there is no bucket bucket; create it, or .*--lake"):
        place.check(must_exist=True)
    (tmp_path / "bucket").mkdir()
    with pytest.raises(RequestError, match="has no object; the first `hindcast run` writes into it, or"):
        place.check(must_exist=True)
    (tmp_path / "bucket" / "lake" / "sales").mkdir(parents=True)
    place.check(must_exist=True)


def test_every_directory_works_or_is_refused_without_a_panic(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """If the check accepts a path, the Delta library writes a table there and reads it again."""
    letters = [*"ab./~ %[]|^\\:?#*{}'\"&=+,;$<>@!-", "é", "\N{PILE OF POO}", "%2", "%2e", "%20", "...", "\t", "\x7f"]
    worked = 0
    for seed in seeds(30):
        rng = random.Random(seed)
        name = "".join(rng.choice(letters) for _ in range(rng.randrange(1, 5)))
        root = f"{tmp_path}/{seed}/x{name}/lake"
        if not os.path.realpath(root).startswith(f"{tmp_path}/{seed}"):
            continue
        with contextlib.suppress(SpecError):
            place = Lake(root=root).table("sales", "ledger")
            write_deltalake(place, pa.table({"a": [1], "s": ["x"]}), partition_by=["s"])
            assert DeltaTable(place).to_pyarrow_table().num_rows == 1
            assert Path(place, "_delta_log").is_dir()
            worked += 1
    assert worked > 10
    assert "panicked" not in capfd.readouterr().err


@pytest.mark.parametrize("setting", [None, "false"])
def test_an_s3_lake_asks_the_metadata_service_only_if_configured(
    setting: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", setting or "")
    if setting is None:
        monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    with socket.create_server(("127.0.0.1", 0)) as service:  # a connection needs no accept() to be seen
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"http://127.0.0.1:{service.getsockname()[1]}")
        ledger = Ledger(Lake(root="s3://bucket/lake").ledger("sales"), now_ms=lambda: 0)
        with pytest.raises(LedgerError, match="s3://bucket/lake/sales/ledger cannot be read"):
            ledger.view()
        asked, _, _ = select.select([service], [], [], 0)
    assert bool(asked) is (setting is not None)


def test_a_link_is_checked_by_its_target(tmp_path: Path) -> None:
    (tmp_path / "[a]").mkdir()
    (tmp_path / "link").symlink_to("[a]")
    with pytest.raises(SpecError, match=r"may not have \[ in its name"):
        Lake(root=str(tmp_path / "link"))
