"""A plan that is stored is run as it is, or not at all: `hindcast plan --out FILE`, `hindcast run --plan FILE`."""

import json
import random
import re
from pathlib import Path
from typing import Final

import pytest

from jobs.planning.plan_file import PlanFile
from jobs.runs import Slice, WarmUp
from tests.jobs.cli.conftest import Shell
from tests.support.fake_replay import PIPELINE, append_day
from tests.support.fuzzing import seeds

RANGE: Final = ("--from", "2024-01-01", "--to", "2024-01-04")


@pytest.fixture
def plan_file(shell: Shell) -> Path:
    path = shell.root / "plan.json"
    assert shell("plan", "sales", *RANGE, "--out", str(path)) == 0
    assert f"run it with `hindcast run sales --plan {path}`" in shell.out.replace("\n", " ")
    return path


def test_a_plan_is_run_even_if_the_log_has_grown_behind_its_slices(shell: Shell, plan_file: Path) -> None:
    append_day(shell.root, "2024-01-09", {"a": 1})
    assert shell("run", "sales", "--plan", str(plan_file)) == 0
    assert shell.replayer.replayed == [["2024-01-01", "2024-01-02", "2024-01-03"]]
    assert {step["published"] for step in shell.json("plan", "sales", *RANGE)["steps"]} == {True}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("log", "the log has other records, or perhaps other records, in slice 2024-01-02"),
        ("spec", "the spec was [0-9a-f]{12} and is [0-9a-f]{12} now"),
        ("head", "the published head was ledger version none and is [0-9]+ now"),
    ],
)
def test_what_moved_since_is_named_and_nothing_is_done(
    shell: Shell, plan_file: Path, change: str, message: str
) -> None:
    match change:
        case "log":
            append_day(shell.root, "2024-01-02", {"late": 7})
        case "spec":
            text = PIPELINE.replace("total: {sum: amount}", "total: {sum: amount}, n: {count: {}}")
            (shell.root / "pipelines" / "sales.yaml").write_text(text)
        case _:
            assert shell("run", "sales", "--from", "2024-01-01", "--to", "2024-01-02") == 0
    before = shell.json("status", "sales")
    assert shell("run", "sales", "--plan", str(plan_file)) == 1
    said = " ".join(shell.err.split())
    assert "is not valid any more" in said
    assert re.search(message, said)
    assert shell.json("status", "sales") == before


def test_a_stored_warm_up_is_read_as_it_was(plan_file: Path) -> None:
    first = Slice(slice_id="2023-12-30", start_ms=1, end_ms=2)
    warm_up = WarmUp(first=first, time=({"source": "a", "watermark_ms": None}, {"source": "b"}), fingerprint="f")
    plan = PlanFile.load(plan_file).model_copy(update={"warm_up": warm_up})
    plan.store(plan_file)
    assert PlanFile.load(plan_file) == plan


def test_the_plan_of_another_pipeline_and_other_options_are_refused(shell: Shell, plan_file: Path) -> None:
    (shell.root / "pipelines" / "other.yaml").write_text(PIPELINE.replace("pipeline: sales", "pipeline: other"))
    assert shell("run", "other", "--plan", str(plan_file)) == 1
    assert "is of pipeline sales, not of other" in " ".join(shell.err.split())
    assert shell("run", "sales", "--plan", str(plan_file), "--fresh") == 2
    assert "--plan has its own range; leave out --fresh" in " ".join(shell.err.split())


def test_a_damaged_file_is_refused_and_names_the_key(shell: Shell, plan_file: Path) -> None:
    """Whatever key is missing, has another type, or is too much."""
    good = json.loads(plan_file.read_text())
    for seed in seeds(20):
        chance = random.Random(seed)
        stored = json.loads(json.dumps(good))
        where = chance.choice([stored, *stored["slices"]])
        key = chance.choice(sorted(where))
        match chance.randrange(3):
            case 0:
                del where[key]
            case 1:
                where[key] = [where[key]]
            case _:
                where["more"] = 1
        plan_file.write_text(json.dumps(stored))
        if key in {"hindcast_plan", "warm_up"} and key not in where:
            continue  # the format has one version, which is the default, and few plans have a warm-up
        assert shell("run", "sales", "--plan", str(plan_file)) == 1, (seed, key)
        assert "is no plan that `hindcast plan --out` has written" in " ".join(shell.err.split())
    plan_file.write_text("{")
    assert shell("run", "sales", "--plan", str(plan_file)) == 1


def test_a_plan_of_another_format_tells_that_another_version_wrote_it(shell: Shell, plan_file: Path) -> None:
    plan_file.write_text(json.dumps(json.loads(plan_file.read_text()) | {"hindcast_plan": 1}))
    assert shell("run", "sales", "--plan", str(plan_file)) == 1
    assert "is a plan of format 1, which another version of Hindcast has written" in " ".join(shell.err.split())


def test_a_plan_that_was_begun_is_continued(shell: Shell, plan_file: Path) -> None:
    """The slices that an earlier try has staged are current, and the rest of the plan is run."""
    assert shell("run", "sales", "--from", "2024-01-01", "--to", "2024-01-03", "--no-publish") == 0
    assert shell("run", "sales", "--plan", str(plan_file), "--replace") == 0
    assert shell.replayer.replayed == [["2024-01-01", "2024-01-02"], ["2024-01-03"]]


def test_a_slice_that_the_plan_does_not_replay_is_not_replayed(shell: Shell, plan_file: Path) -> None:
    assert shell("run", "sales", "--plan", str(plan_file)) == 0
    assert shell("plan", "sales", *RANGE, "--out", str(plan_file)) == 0
    stored = json.loads(plan_file.read_text())
    assert {one["reason"] for one in stored["slices"]} == {"current"}
    assert shell("run", "sales", "--plan", str(plan_file)) == 0
    assert len(shell.replayer.replayed) == 1
    append_day(shell.root, "2024-01-03", {"late": 2})
    assert shell("run", "sales", "--plan", str(plan_file)) == 1
    assert len(shell.replayer.replayed) == 1
