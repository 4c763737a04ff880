"""The lines of commits end at line feeds only. deltalake writes other line ends of Unicode as they are."""

from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pytest
from deltalake import write_deltalake

from jobs.lake.json_lines import json_lines
from jobs.lake.log_files import list_log_files

ENDS = "\u2028 \u2029 \x85 \x0b \x0c \x1c"
"""Characters at which `str.splitlines` ends a line."""


def test_a_commit_whose_statistics_have_line_ends_of_unicode_is_read(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), pa.table({"text": [ENDS]}))
    files = list_log_files(str(tmp_path), pafs.LocalFileSystem(), str(tmp_path), version=0)
    assert len((tmp_path / "_delta_log" / f"{0:020}.json").read_text("utf-8").splitlines()) > len(files.entries(0))
    [stats] = [entry["add"]["stats"] for entry in files.entries(0) if "add" in entry]
    assert json_lines(stats.encode())[0]["maxValues"] == {"text": ENDS}


def test_blank_lines_are_skipped_and_others_must_be_json() -> None:
    assert json_lines(b'{"a": 1}\r\n\n  \n[2]\n') == [{"a": 1}, [2]]
    with pytest.raises(ValueError, match="Expecting value"):
        json_lines(b"no json")
