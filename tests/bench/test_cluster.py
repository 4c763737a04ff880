"""A real Spark cluster without containers: one worker and two give the ledger of the embedded default."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.cluster import WORKLOAD, play
from bench.delta_logs import log_for
from tests.deploy.ledger_runs import runs
from tests.support.places import ROOT

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1200)]

RECORDS = 30_000
HINDCAST = "import sys; from jobs.cli.main import main; sys.exit(main())"


def test_a_cluster_of_any_size_gives_the_runs_of_this_machine(tmp_path: Path) -> None:
    log = log_for(WORKLOAD, RECORDS, cache=tmp_path)
    pipelines = tmp_path / "pipelines"
    pipelines.mkdir()
    (pipelines / "bench.yaml").write_text(json.dumps(WORKLOAD.document(table=log)), encoding="utf-8")
    span = ["--from", "2024-01-01", "--to", "2024-01-02", "--lake", str(tmp_path / "lake")]
    command = [sys.executable, "-c", HINDCAST, "run", "bench", *span, "--pipelines", str(pipelines)]
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True)
    wanted = runs(str(tmp_path / "lake"), "bench")
    assert len(wanted) == 1
    for workers in (1, 2):
        played = play(log, workers=workers, scratch=tmp_path / "cluster")
        assert played["runs"] == wanted
        figures = played["figures"]
        assert all(seconds > 0 for seconds in figures["workers_cpu_s"]), "every worker has run tasks"
        assert all(most > 0 for most in figures["largest_mb"].values()), "every process was seen"
        assert {"scan", "audit"} <= set(figures["stages"])
        assert {"scan", "windows and second scan"} <= {job["stage"] for job in played["jobs"]}
