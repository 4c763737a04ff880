"""The blocks of docs/tutorials/first-pipeline.md run in order, with the real command line and tasks of the DAGs.

Commands run in this process, and the replays in the Spark session of the tests. A block after a comment
`<!-- DAG run: ID -->` is what the tasks of that DAG run log. `scheduled__TIME` is that of the interval that ends then;
other DAG runs take all slices that are over. `...` matches anything, and white space is not compared.
"""

import doctest
import json
import os
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import assert_never

import pytest

from jobs.cli.main import hindcast
from jobs.cli.options import run_cli
from jobs.lake.lake import Lake
from jobs.orchestration import dag_orders, dag_tasks
from jobs.orchestration.replay_progress import slice_line
from jobs.orchestration.scheduling import Skip, Wait
from jobs.pipeline.files import load_pipeline
from jobs.planning.request_context import open_request_context
from jobs.planning.standing import standing
from jobs.publishing.stop_reasons import stop_reasons
from jobs.replay.orders import Replayer
from jobs.replay.replayer import replay_chunk
from jobs.spark.lazy_session import LazySession
from tests.support.places import ROOT
from tests.support.spark_session import SparkSession

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

PAGE = (ROOT / "docs" / "tutorials" / "first-pipeline.md").read_text(encoding="utf-8")
OWN_TABLE = (ROOT / "docs" / "how-to" / "your-own-table.md").read_text(encoding="utf-8")
CANDIDATES = (ROOT / "docs" / "how-to" / "candidates.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"into `((?:pipelines|expectations)/\w+\.\w+)`")
DAG_RUN = re.compile(r"<!-- DAG run: (\S+) -->\s*\Z")
SHOWN_RUN = re.compile(r"--run ([0-9a-f]{6,})")
CANDIDATE = re.compile(r"candidate ([0-9a-f]{12}) compared")
SHOWN_PUBLICATION = re.compile(r"newest publication: (\d+)")
START = datetime(2026, 11, 27, 12, tzinfo=UTC)
SETTINGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass
class Reader:
    """A person who does what the page tells, in one directory."""

    capsys: pytest.CaptureFixture[str]
    monkeypatch: pytest.MonkeyPatch
    now: datetime = START
    names: dict[str, object] = field(default_factory=lambda: {"__name__": "tutorial"})
    seen: str = ""
    shows_progress: bool = True

    def now_ms(self) -> int:
        return round(self.now.timestamp() * 1000)

    def do(self, kind: str, text: str, before: str) -> None:
        """Do what a block tells; `before` is the text before it."""
        dag_run = DAG_RUN.search(before)
        match kind:
            case "console":
                for command, shown in _commands(text):
                    self._type(command, shown)
            case "python":
                exec(compile(text, "docs/tutorials/first-pipeline.md", "exec"), self.names)  # noqa: S102 - it is our own
            case "yaml" | "json":
                Path(FILE.findall(before)[-1]).write_text(text, encoding="utf-8")
            case "text" if dag_run is not None:
                self._check(f"the DAG run {dag_run[1]}", "\n".join(self._dag_run(dag_run[1])), text)
            case _:
                pytest.fail(f"no one knows how to do this block: {kind} {text}")

    def _type(self, command: str, shown: str) -> None:
        words = shlex.split(os.path.expandvars(command), comments=True)
        match words:
            case ["export", *settings]:
                for setting in settings:
                    self.monkeypatch.setenv(*setting.split("=", 1))
            case ["mkdir", "-p", *names]:
                _make_directories(names)
            case ["cd", name]:
                self.monkeypatch.chdir(name)
                self.monkeypatch.setenv("PWD", str(Path.cwd()))
            case ["hindcast" | ".venv/bin/hindcast", *arguments]:
                self._hindcast([self._filled(one) for one in arguments], shown)
            case _:
                pytest.fail(f"this test does not know the command {command}")

    def _filled(self, argument: str) -> str:
        """Return an argument; in place of RUN and PUBLICATION, what the last outputs have shown."""
        shape = {"RUN": SHOWN_RUN, "PUBLICATION": SHOWN_PUBLICATION}.get(argument)
        return argument if shape is None else shape.findall(self.seen)[-1]

    def _hindcast(self, arguments: list[str], shown: str) -> None:
        status = run_cli(hindcast, arguments)
        found = self.capsys.readouterr()
        self.seen += found.out
        assert status == 0, (arguments, found)
        printed = found.out + found.err if self.shows_progress else found.out
        self._check(f"hindcast {' '.join(arguments)}", printed, shown)

    def _dag_run(self, run_id: str) -> Iterator[str]:
        """Run the tasks of a DAG run until one waits or fails, and yield what they log."""
        self.now += timedelta(minutes=10)
        kind, _, time = run_id.partition("__")
        end = datetime.fromisoformat(time).replace(tzinfo=UTC)
        run = dag_tasks.DagRun(
            dag_id="replay_orders",
            run_id=run_id,
            run_type={"waits": "operator_triggered"}.get(kind, kind),
            interval_start=end - timedelta(days=1) if kind == "scheduled" else None,
            interval_end=end if kind == "scheduled" else None,
        )
        planned = dag_tasks.plan("replay", str(Path("pipelines/orders.yaml").resolve()), run)
        yield from (f"plan: {line}" for line in (*planned.warnings, *planned.changes))
        match planned:
            case Skip(why=why) | Wait(why=why):
                yield f"plan: {why}"
            case dag_orders.Order():
                yield from (f"plan: {line}" for line in (*planned.outline, planned.waits))
                order = dag_orders.read_order(json.dumps(planned.to_json()))
                yield from (f"replay: {slice_line(staged.result)}" for staged in dag_tasks.replay(order))
                gate = dag_tasks.gate(order)
                yield from (
                    f"gate: {run.result.slice.slice_id}: {reason}" for run in gate.held for reason in stop_reasons(run)
                )
                if gate.is_passed:
                    yield f"gate: {gate.why}"
                    yield f"publish: {dag_tasks.publish(order).why}"
            case _:
                assert_never(planned)

    def _check(self, what: str, found: str, shown: str) -> None:
        is_right = not shown or doctest.OutputChecker().check_output(shown, found.rstrip("\n") + "\n", SETTINGS)
        assert is_right, f"{what}\n--- the page shows\n{shown}\n--- found\n{found}"


def _make_directories(names: list[str]) -> None:
    for name in names:
        Path(name).mkdir(parents=True)


def _commands(text: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a block, with the output that the block shows."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        yield command, shown


@contextmanager
def _replayer(spark: SparkSession) -> Iterator[Replayer]:
    yield lambda order: replay_chunk(LazySession.of(spark), order)


@pytest.fixture
def reader(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Reader:
    (tmp_path / "hindcast" / "pipelines").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "hindcast")
    monkeypatch.delenv("HINDCAST_PIPELINES", raising=False)
    for name, value in {"PWD": str(Path.cwd()), "COLUMNS": "120", "HINDCAST_WHO": "ann"}.items():
        monkeypatch.setenv(name, value)
    person = Reader(capsys, monkeypatch)
    for module in ("jobs.cli.options", "jobs.orchestration.dag_tasks"):
        monkeypatch.setattr(f"{module}.now_ms", person.now_ms)
    monkeypatch.setattr("jobs.replay.replayer.spark_replayer", lambda _master=None: _replayer(spark))
    return person


def test_the_tutorial_works_as_it_is_written(reader: Reader) -> None:
    blocks = list(BLOCK.finditer(PAGE))
    assert len(blocks) > 15
    for block in blocks:
        reader.do(block[1], block[2], PAGE[: block.start()])


def test_the_log_of_the_page_about_your_own_table_fits_its_pipeline(reader: Reader) -> None:
    reader.now = datetime(2026, 11, 9, tzinfo=UTC)
    section = OWN_TABLE.partition("## A log and a pipeline file")[2].partition("If a check fails")[0]
    section += OWN_TABLE.partition("## Which tables can be a log")[2].partition("## ")[0]
    blocks = list(BLOCK.finditer(section))
    assert [block[1] for block in blocks] == ["python", "yaml", "console", "console"]
    for block in blocks:
        reader.do(block[1], block[2], section[: block.start()])
    assert "7 slices replayed, 7 in the range: 7 passed; published." in reader.seen
    work = open_request_context(load_pipeline("clicks", Path("pipelines")), Lake(root="lake"), now_ms=reader.now_ms)
    assert len(work.ledger.view().published) == 7
    assert standing(work, work.ledger.view()).ready == ()


def test_the_page_about_candidates_goes_on_from_the_page_about_your_own_table(reader: Reader) -> None:
    reader.now, reader.shows_progress = datetime(2026, 11, 9, tzinfo=UTC), False
    section = OWN_TABLE.partition("## A log and a pipeline file")[2].partition("If a check fails")[0]
    for block in BLOCK.finditer(section):
        reader.do(block[1], block[2], section[: block.start()])
    file = Path("pipelines/clicks.yaml")
    file.write_text(file.read_text(encoding="utf-8").replace("{sum: amount}", "{max: amount}"), encoding="utf-8")
    (shown,) = set(CANDIDATE.findall(CANDIDATES))
    first, *others = [block[2] for block in BLOCK.finditer(CANDIDATES)]
    assert len(others) == 3
    reader.do("console", re.sub(r"[0-9a-f]{12}", "...", first), "")
    (own,) = set(CANDIDATE.findall(reader.seen))  # a request has a random id
    for text in others:
        reader.do("console", text.replace(shown, own), "")


def test_the_readme_has_the_pipeline_and_the_read_of_the_page_about_your_own_table() -> None:
    """That page is run, so the README is right as well."""
    shown = [block[2] for block in BLOCK.finditer(README) if block[1] in {"yaml", "python"}]
    played = [block[2] for block in BLOCK.finditer(OWN_TABLE)]
    assert len(shown) == 2
    assert [block for block in shown if block not in played] == []


def test_every_block_of_a_console_begins_with_a_command() -> None:
    assert all(block[2].startswith("$ ") for block in BLOCK.finditer(PAGE) if block[1] == "console")
