"""The workers of a Spark cluster have directories of their own, so a replay there needs absolute places."""

from functools import partial
from pathlib import Path

import pytest

from jobs.orchestration.requests import run_request
from jobs.planning.request_context import Asked
from jobs.replay.replayer import replay_chunk
from jobs.spark.lazy_session import LazySession
from tests.support.fake_replay import append_day, day_ms, sales
from tests.support.replays import context_in
from windowlib.errors import RequestError


def test_a_relative_lake_is_refused_before_a_cluster_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append_day(tmp_path / "lake", "2024-01-01", {"a": 1})
    monkeypatch.chdir(tmp_path)
    cluster = LazySession.named("a test", "spark://127.0.0.1:1")
    asked = Asked(from_ms=day_ms("2024-01-01"), to_ms=day_ms("2024-01-02"), who="ann", reason="a test")
    with pytest.raises(RequestError, match="lake is a relative path"):
        run_request(context_in("lake", sales()), asked, partial(replay_chunk, cluster))
