"""`examine` of a table in an object store finds what it finds on a disk. No Spark."""

import shutil
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from jobs.cli.doctor import examination_json
from jobs.doctor.column_roles import Wishes
from jobs.doctor.examination import Request, examine
from jobs.lake.lake import Lake
from jobs.storage import file_system
from tests.jobs.doctor import tables

pytestmark = [pytest.mark.s3, pytest.mark.usefixtures("store")]


def test_a_table_in_an_object_store_has_the_findings_of_its_copy_on_a_disk(lake: str, tmp_path: Path) -> None:
    tables.tracked(tmp_path / "clicks")
    system, root = file_system(f"{lake}/clicks")
    pafs.copy_files(
        str(tmp_path / "clicks"), root, source_filesystem=pafs.LocalFileSystem(), destination_filesystem=system
    )

    def found(place: str) -> dict[str, object]:
        request = Request(
            table="clicks", uri=f"{place}/clicks", lake=Lake(root=place), pipelines=tmp_path, wishes=Wishes()
        )
        plain = examination_json(examine(request, now_ms=1_800_000_000_000))
        assert plain.pop("table") == f"{place}/clicks"
        for finding in plain["findings"]:
            finding["mend"] = (finding["mend"] or "").replace(place, "LAKE")
        return plain

    on_disk = found(str(tmp_path))
    shutil.rmtree(tmp_path / "clicks")
    in_store = found(lake)
    assert in_store == on_disk
    assert in_store["fit"] is True
