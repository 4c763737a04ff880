"""The real commands: `verify` finds a flipped bit, `mend` makes the rows again, and `clean` lists what is past."""

import json
from pathlib import Path
from random import Random

import pytest

from tests.support.commands import Commands
from tests.support.flipped_bits import bits_in_pages, flip
from tests.support.repair_model import day_text
from tests.support.small_lake import SmallLake

PIPELINE = """
pipeline: late
log:
  table: log
  key: [k]
  event_time: {column: at, unit: ms}
  slice: {by: day}
  order: [seq]
watermark: {kind: bounded, out_of_orderness: 6h}
windows: {tumbling: {size: 30h}}
aggregates: {n: {count: {}}, total: {sum: v}}
retention: {superseded: 90d, unpublished: 30d}
"""


@pytest.mark.slow
def test_a_flipped_bit_is_found_and_mended_by_the_commands(tmp_path: Path) -> None:
    lake, rng = SmallLake(tmp_path), Random(7)
    for _ in range(4):
        lake.append(rng)
    (tmp_path / "late.yaml").write_text(PIPELINE, encoding="utf-8")

    def hindcast(*arguments: str) -> tuple[int, str]:
        places = ("--lake", str(tmp_path), "--pipelines", str(tmp_path))
        with Commands() as commands:
            process = commands.python("-m", "jobs.cli.main", *arguments, *places)
            out, _err = process.communicate()
            return process.returncode, out

    assert hindcast("run", "late", "--from", day_text(0), "--to", day_text(4))[0] == 0
    seen = lake.rows()
    assert hindcast("verify", "late")[0] == 0
    path = next((tmp_path / "late" / "tallies" / f"slice_id={day_text(2)}").glob("*/*.parquet"))
    flip(path, bits_in_pages(path, rng, 1)[0])
    status, text = hindcast("verify", "late")
    assert (status, text.splitlines()[-1]) == (1, f"next: hindcast mend late {day_text(2)}")
    status, text = hindcast("mend", "late", day_text(2), "--dry-run")
    assert status == 0
    assert "1 run can be made again" in text
    status, text = hindcast("mend", "late", day_text(2), "--json")
    assert (status, json.loads(text)["left"]) == (0, [])
    assert hindcast("verify", "late")[0] == 0
    assert lake.rows() == seen
    status, text = hindcast("clean", "late", "--json")
    assert (status, json.loads(text)["rows"]) == (0, [])
    assert hindcast("verify", "late", "--share", "1")[0] == 2
