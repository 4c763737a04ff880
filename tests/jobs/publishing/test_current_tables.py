"""The current tables: plain Delta tables of exactly what readers see, moved by the slices that changed."""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import Mock

import duckdb
import pytest
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType

from jobs.durability import SETTING
from jobs.engine.fingerprints import spec_fingerprint
from jobs.lake import damage, plain_table
from jobs.lake.delta_tables import forget_table
from jobs.lake.durable_commits import added_paths
from jobs.lake.lake import Lake
from jobs.ledger.publications import Publication
from jobs.ledger.view import LedgerView
from jobs.orchestration.requests import run_request
from jobs.pipeline.files import parse_pipeline
from jobs.planning.request_context import Asked, RequestContext, open_request_context
from jobs.planning.stored_spec import stored_pipeline
from jobs.publishing import table_move, verified_current
from jobs.publishing.current_tables import MADE_AGAIN, current_tables, move_current_tables
from jobs.publishing.verified_current import verify_current_tables
from jobs.reading.published import read_published
from tests.jobs.comparing.test_compare import OUTPUTS, TABLE, VALUES
from tests.support.fake_replay import PIPELINE, FakeReplayer, append_day, day_ms, sales
from tests.support.fuzzing import seeds
from tests.support.random_views import NAME, Views, random_windows, spec_text
from tests.support.spark_session import SparkSession
from windowlib.errors import StoreError

KEY = "publish: {current_tables: [window_outputs]}\n"


class Killed(BaseException):
    """The end of a process."""


def rows_of(uri: str) -> list[str]:
    """Return the rows of a table as Delta's own reader and as DuckDB read it; both must be equal."""
    table = DeltaTable(uri)
    rows = table.to_pyarrow_table()
    dataset = table.to_pyarrow_dataset()
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        by_duckdb = connection.sql("FROM dataset").to_arrow_table()
    assert dataset.schema.names == by_duckdb.column_names
    assert plain(by_duckdb.to_pylist()) == plain(rows.to_pylist())
    return plain(rows.to_pylist())


def plain(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(repr(sorted((name, shown(value)) for name, value in row.items())) for row in rows)


def shown(value: object) -> str:
    """The text of a value, whatever library has made its time zone."""
    return value.isoformat() if hasattr(value, "isoformat") else repr(value)


@dataclass
class StoredView:
    """A ledger of which only the view is read."""

    current: LedgerView
    uri: str = ""
    now_ms: Callable[[], int] = field(default=lambda: 0)

    def view(self) -> LedgerView:
        return self.current


class RandomPublications:
    """Random attempts at a few days, and publications of some of them: windows with panes in several slices."""

    def __init__(self, root: Path, rng: Random) -> None:
        self.rng = rng
        self.views = Views(root, OUTPUTS)
        spec = self.views.spec(["key"], list(OUTPUTS))
        self.attempts: list[list[str | None]] = []
        alternatives = [random_windows(rng, (), days=5, values=(0,)) for _ in range(3)]
        for day in range(5):
            choices = [
                [row | {name: rng.choice(VALUES[name]) for name in OUTPUTS} for row in days[day]]
                for days in alternatives
            ]
            self.attempts.append([None, *(self.views.run(day, spec, (TABLE, rows)) for rows in choices)])
        self.views.commit()
        self.published: dict[str, str] = {}
        self.publications: list[Publication] = []
        self.now_ms = 0
        pipeline = parse_pipeline(spec_text(["key"], list(OUTPUTS)) + KEY, source="views.yaml")
        self.work: RequestContext = replace(
            open_request_context(pipeline, Lake(root=str(root)), now_ms=lambda: 0),
            ledger=StoredView(self.views.view()),  # type: ignore[arg-type]
        )
        self.uri = str(root / NAME / "current_window_outputs")

    def change(self) -> None:
        """Publish, replace or hide some slices."""
        changes: dict[str, str | None] = {}
        for day in self.rng.sample(range(5), self.rng.choice([1, 1, 1, 2, 4])):
            changes[f"2024-01-{day + 1:02d}"] = self.rng.choice(self.attempts[day])
        merged: Mapping[str, str | None] = {**self.published, **changes}
        self.published = {slice_id: run for slice_id, run in sorted(merged.items()) if run is not None}
        seq = max((past.seq for past in self.publications), default=0) + self.rng.choice([1, 1, 2])
        self.now_ms += 1
        self.publications.append(
            Publication(seq=seq, at_ms=self.now_ms, request_id=None, who="me", undoes=None, changes=changes)
        )
        self._show()

    def go_on(self) -> None:
        """Lose publications, or change slices, or both."""
        if self.rng.random() < 0.3:
            self.lose()
        if self.rng.random() < 0.9:
            self.change()

    def lose(self) -> None:
        """Lose the newest publications, which a person accepts. Later ones get their versions again."""
        del self.publications[-self.rng.choice([1, 1, 2, 9]) :]
        self.published = LedgerView(version=0, publications=self.publications).published_at(1_000)
        self._show()

    def _show(self) -> None:
        version = 1 + max((past.seq for past in self.publications), default=0)
        view = replace(self.views.view(self.published), version=version, publications=tuple(self.publications))
        self.work.ledger.current = view  # type: ignore[attr-defined]

    def expected(self) -> list[str]:
        view = self.work.ledger.view()
        return plain(read_published(self.work.lake, NAME, view).to_pylist()) if view.published else []


@pytest.mark.slow
def test_a_current_table_is_what_readers_see_after_kills_and_races_and_lost_publications(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = plain_table.replace_slices
    replaced: list[int | None] = []
    for seed in seeds(3):
        rng = Random(seed)
        monkeypatch.setattr(table_move, "WHOLE_FROM", rng.choice([0.5, 1, 1]))
        story = RandomPublications(tmp_path / str(seed), rng)
        plan: list[str] = []

        def interrupted(*arguments: Any, story: RandomPublications = story, plan: list[str] = plan) -> bool:  # noqa: ANN401
            step = plan.pop() if plan else "commit"
            if step == "kill before":
                raise Killed
            if step == "race":  # another process publishes and moves the table first
                story.change()
                move_current_tables(story.work)
                assert not commit(*arguments)
                return False
            replaced.append(None if arguments[2].slices is None else len(arguments[2].slices))
            assert commit(*arguments)
            if step == "kill after":
                raise Killed
            return True

        monkeypatch.setattr(plain_table, "replace_slices", interrupted)
        for _ in range(6):
            story.go_on()
            plan[:] = [rng.choice(["commit", "commit", "race", "kill before", "kill after"])]
            with suppress(Killed):
                move_current_tables(story.work)
                [table] = current_tables(story.work)
                assert not table.is_behind
                assert rows_of(story.uri) == story.expected()
        plan.clear()
        move_current_tables(story.work)
        assert rows_of(story.uri) == story.expected()
        before = DeltaTable(story.uri).version()
        move_current_tables(story.work)
        assert DeltaTable(story.uri).version() == before
    assert None in replaced
    assert any(count for count in replaced if count)


def test_a_table_that_a_killed_process_has_moved_is_awaited_by_the_next_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defect: the next command did not look at a table that was there already."""
    story = RandomPublications(tmp_path, Random(0))
    while not Path(story.uri).exists():
        story.go_on()
        move_current_tables(story.work)
    awaited = list[str]()
    monkeypatch.setenv(SETTING, "on")
    monkeypatch.setattr(os, "fsync", lambda place: awaited.append(str(Path(f"/proc/self/fd/{place}").readlink())))
    move_current_tables(story.work)
    newest = Path(story.uri, "_delta_log", f"{DeltaTable(story.uri).version():020}.json")
    assert {str(newest), str(newest.parent), *(f"{story.uri}/{path}" for path in added_paths(newest))} <= {*awaited}


@pytest.mark.parametrize("reads", ["_blocks", "published_rows_of"])
def test_a_store_that_does_not_answer_is_no_damage_of_a_current_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: str
) -> None:
    story = RandomPublications(tmp_path, Random(0))
    while not Path(story.uri).exists():
        story.go_on()
        move_current_tables(story.work)
    store = Mock()
    monkeypatch.setattr(damage, "is_remote", lambda _uri: True)
    error = damage.unreadable(story.uri, OSError("it cannot be read"))
    monkeypatch.setattr(verified_current, reads, Mock(side_effect=error))
    monkeypatch.setattr(damage, "file_system", lambda uri: (store, uri))
    [finding] = verify_current_tables(story.work)
    assert "it cannot be read." in finding.what, "the store answers, so a file is damaged"
    assert (MADE_AGAIN in finding.what) is (reads == "_blocks"), "defect: in a store, only a copy was named as a way on"
    store.get_file_info.side_effect = OSError("Could not connect")
    with pytest.raises(StoreError, match=r"it cannot be read\..* The store does not answer now: Could not connect"):
        next(verify_current_tables(story.work))


def test_a_column_that_a_run_adds_before_its_publication_is_moved(tmp_path: Path) -> None:
    """Defects: the columns were read before the view, so a publication between the two lost its new column.

    No reader of Delta's kernel could open a current table that had got its first TIMESTAMP_NTZ by a move.
    """
    story = RandomPublications(tmp_path, Random(1))
    story.change()
    move_current_tables(story.work)
    story.change()

    spec = story.views.spec(["key"], [*OUTPUTS, "later"])
    publication = replace(story.publications[-1], seq=100, request_id=spec)

    class Late(StoredView):
        def view(self) -> LedgerView:  # another process adds the column, and publishes
            outputs = DeltaTable(tmp_path / NAME / "window_outputs")
            if "later" not in {field.name for field in outputs.schema().fields}:
                outputs.alter.add_columns([Field("later", PrimitiveType("timestamp_ntz"))])
                forget_table(str(tmp_path / NAME / "window_outputs"))
            return replace(self.current, version=101, publications=(*self.current.publications, publication))

    late = replace(story.work, ledger=Late(story.work.ledger.view()))  # type: ignore[arg-type]
    table_move.move_table(late, "window_outputs", uri=story.uri)
    assert "later" in {field.name for field in DeltaTable(story.uri).schema().fields}


def test_a_move_opens_no_file_that_has_no_changed_window_by_its_statistics(tmp_path: Path) -> None:
    days = [f"2024-01-{number:02d}" for number in range(1, 7)]
    for day in days:
        append_day(tmp_path, day, {"a": 1})
    work = open_request_context(sales(PIPELINE + KEY), Lake(root=str(tmp_path)), now_ms=lambda: day_ms("2024-02-01"))

    def run(first: str) -> None:
        asked = Asked(from_ms=day_ms(first), to_ms=day_ms("2024-01-07"), who="me", reason="test")
        assert run_request(work, asked, FakeReplayer()).is_published

    run(days[0])
    table = tmp_path / "sales" / "current_window_outputs"
    others = {file for day in days[:-1] for file in table.glob(f"slice_id={day}/*.parquet")}
    assert len(others) == len(days) - 1
    for file in others:
        file.rename(file.with_suffix(".away"))
    append_day(tmp_path, days[-1], {"b": 2})
    run(days[-1])
    for file in others:
        file.with_suffix(".away").rename(file)
    assert {Path(uri) for uri in DeltaTable(table).file_uris()} > others
    assert DeltaTable(table).to_pyarrow_table().num_rows == len(days) + 1


def test_the_key_of_the_file_counts_for_older_requests(tmp_path: Path) -> None:
    views = Views(tmp_path, OUTPUTS)
    request = views.requests[views.spec(["key"], list(OUTPUTS))]
    text = spec_text(["key"], list(OUTPUTS))
    for edited, tables in ((text, ()), (text + KEY, ("window_outputs",))):
        stored = stored_pipeline(parse_pipeline(edited, source="views.yaml"), request)
        assert (() if stored.publish is None else stored.publish.current_tables) == tables
        assert spec_fingerprint(stored) == spec_fingerprint(parse_pipeline(text, source="views.yaml"))


@pytest.mark.spark
@pytest.mark.slow
def test_spark_reads_a_current_table_without_code_of_hindcast(tmp_path: Path, spark: SparkSession) -> None:
    story = RandomPublications(tmp_path, Random(1))
    for _ in range(4):
        story.change()
        move_current_tables(story.work)
        expected = read_published(story.work.lake, NAME, story.work.ledger.view())
        names = sorted(expected.column_names)
        frame = spark.read.format("delta").load(story.uri)
        assert plain(frame.select(*names).toArrow().to_pylist()) == plain(expected.to_pylist())
        assert frame.where("slice_id = '2024-01-01'").count() == expected["slice_id"].to_pylist().count("2024-01-01")
