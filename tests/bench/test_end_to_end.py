"""The contestants that need Spark, as `make bench` starts them: in processes of their own, with equal results."""

from pathlib import Path

import pytest

from bench.contests import Contest, Settings, play
from bench.delta_logs import log_for
from bench.log_forms import FORMS
from bench.workloads import Workload

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SESSIONS = Workload(kind="session", gap_ms=30_000, keys=20, density=2_000)


@pytest.mark.parametrize(
    "names",
    [
        ("hindcast", "spark", "spark_streaming", "duckdb_files", "polars_files"),
        ("hindcast_cold", "duckdb_cold", "polars_cold"),
        ("hindcast_scan", "spark_scan"),
    ],
    ids=lambda names: names[0],
)
def test_contestants_read_one_log_and_agree(names: tuple[str, ...], tmp_path: Path) -> None:
    contest = Contest(
        name="small", title="", what="", contestants=names, workload=SESSIONS, records=2_000, source="log", rounds=1
    )
    settings = Settings(rounds=1, cores=2, cache=tmp_path, scratch=tmp_path / "scratch")
    played = play(contest, settings, log=log_for(SESSIONS, 2_000, cache=tmp_path))
    assert {entry.name: entry.missing for entry in played.entries} == dict.fromkeys(names, "")
    assert all(entry.checksums[0].rows > 0 for entry in played.entries)


def test_logs_of_all_forms_have_the_same_panes(tmp_path: Path) -> None:
    names = {f"intake@{title}": {"form": form} for form, title in FORMS.items()}
    contest = Contest(
        name="forms", title="", what="", contestants=(*names,), workload=SESSIONS, records=2_000, source="own",
        rounds=1, options=names,
    )  # fmt: skip
    played = play(contest, Settings(rounds=1, cores=2, cache=tmp_path, scratch=tmp_path / "scratch"))
    assert {entry.name: entry.missing for entry in played.entries} == dict.fromkeys(names, "")
    assert all(entry.checksums[0].rows > 0 for entry in played.entries)
