"""The session of docs/how-to/read.md writes a log that Hindcast replays, and reads what is published."""

import re
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from jobs.spark.jars import delta_jars
from tests.support.commands import Commands
from tests.support.places import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

PAGE = (ROOT / "docs" / "how-to" / "read.md").read_text(encoding="utf-8")
SESSION, READ, APPEND = re.findall(
    r"^```python\n(.*?)^```", PAGE.partition("\n## Spark\n")[2].partition("\n## ")[0], re.MULTILINE | re.DOTALL
)
[PLAIN] = re.findall(r"^spark\.read.*$", PAGE, re.MULTILINE)
PIPELINE = """
pipeline: clicks
log: {table: event_logs/clicks, key: [user_id], event_time: clicked_at, record_id: click_id, slice: {by: ingest_date}}
watermark: {kind: bounded, out_of_orderness: 1h}
windows: {tumbling: {size: 1h}, trigger: {count: 1}, leftovers: report}
aggregates: {clicks: {count: {}}, spent: {sum: amount}}
publish: {current_tables: [window_outputs]}
"""
# The jars are not fetched, and the small tables take few tasks.
SETTINGS = {
    "spark.jars": ",".join(map(str, delta_jars())),
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "2",
}
OFFLINE = f"""
import delta
delta.configure_spark_with_delta_pip = lambda builder: builder.config(map={SETTINGS!r})
"""
RUN = """
from jobs.cli.main import hindcast
from jobs.cli.options import run_cli
assert run_cli(hindcast, "run clicks --from 2026-11-01 --to 2026-11-02 --lake lake".split()) == 0
"""
SHOWN = f"""
plain = {PLAIN.replace("flights", "clicks")}
assert [(row.user_id, row.clicks, row.spent) for row in windows.collect()] == [("u0", 1, 1.5)]
assert [row.clicks for row in plain.collect()] == [1]
assert (late.count(), arrow.num_rows) == (0, 1)
"""


def test_the_session_of_the_page_writes_a_log_and_reads_what_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "clicks.yaml").write_text(PIPELINE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for name in ("HINDCAST_PIPELINES", "HINDCAST_LAKE"):
        monkeypatch.delenv(name, raising=False)
    with Commands() as commands:
        text = "".join((OFFLINE, SESSION, APPEND, RUN, READ, SHOWN))
        process = commands.python("-c", text, environ={"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable})
        told = process.communicate()
    assert process.returncode == 0, told


def test_the_page_installs_the_versions_of_hindcast() -> None:
    assert f"pip install pyspark=={version('pyspark')} delta-spark=={version('delta-spark')}\n" in PAGE
