"""The bench itself: statistics, equality, the order of a contest, and the page. Nothing here measures speed."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any
from xml.etree import ElementTree as ET

import pyarrow as pa
import pytest

from bench.__main__ import leaving_out
from bench.checksums import COLUMNS, UnequalResults, checksum, require_equal
from bench.contestant import PLACES, CannotTakePart, Job, contestant
from bench.contests import Contest, Equality, MachineLoaded, Settings, Target, play
from bench.machine import why_loaded
from bench.page import number, pages
from bench.results import merged, result_of
from bench.samples import Checksum, Sample, Spread, ratio, straight_line
from bench.seats import Missing, Ran, SeatFailed
from bench.suite import SIZES, suite
from bench.workloads import CLOSING_KEY, Workload
from tests.support.fuzzing import chances
from tests.support.places import ROOT

SUM = Checksum(rows=1, records=2, total=3, mix=4)
WORKLOAD = Workload(kind="tumbling", size=60_000, keys=3)


class FakeSeat:
    """A seat without a process. It takes its wall seconds from a table, and notes in `diary` what it was asked."""

    def __init__(self, name: str, *, walls: Mapping[str, float], diary: list[str], checksums: Mapping[str, Checksum]):
        self.name, self.walls, self.diary, self.checksums = name, walls, diary, checksums

    def prepare(self, job: Job) -> None:
        if self.name not in self.walls:
            raise Missing("It is not installed.")
        self.diary.append(f"prepare {self.name}")
        assert Job.from_json(json.loads(json.dumps(job.to_json()))) == job

    def run(self) -> Ran:
        self.diary.append(self.name)
        sample = Sample(wall_s=self.walls[self.name], cpu_s=self.walls[self.name] * 2, rss_mb={"tree": 10.0})
        stages = {"wall_s": {"pin": 1.0}, "cpu_s": {"pin": 2.0}}
        notes = {"stages": stages, "cpu_s_by_process": {"jvm": 1.5}}
        return Ran(sample=sample, checksum=self.checksums.get(self.name, SUM), notes=notes)

    def close(self) -> None:
        self.diary.append(f"close {self.name}")


def contest(*names: str, **changes: Any) -> Contest:  # noqa: ANN401 - fields
    usual: dict[str, Any] = {"title": "A < B", "what": "It is a test.", "workload": WORKLOAD, "source": "memory"}
    return Contest(name="test", contestants=names, records=1_000_000, **(usual | changes))


def settings(tmp_path: Path, **changes: Any) -> Settings:  # noqa: ANN401 - fields
    return replace(Settings(rounds=3, cores=2, cache=tmp_path, scratch=tmp_path), **changes)


def fakes(diary: list[str], walls: Mapping[str, float], **checksums: Checksum) -> Callable[..., FakeSeat]:
    return lambda name, _log, _environ: FakeSeat(name, walls=walls, diary=diary, checksums=checksums)


def idle() -> float:
    return 0.0


class TestStatistics:
    def test_a_spread_contains_its_median(self) -> None:
        for rng in chances(20):
            numbers = [rng.uniform(0.1, 9) for _ in range(rng.randrange(1, 9))]
            found = Spread.of(numbers)
            assert (found.least, found.median, found.greatest) == (min(numbers), median(numbers), max(numbers))
        with pytest.raises(ValueError, match="at least one"):
            Spread.of([])

    def test_a_ratio_compares_round_by_round(self) -> None:
        ours, peer = ([Sample(wall_s=wall_s, cpu_s=1.0) for wall_s in walls] for walls in ((1, 2, 4), (3, 2, 20)))
        assert ratio(ours, peer, "wall_s") == Spread(median=3, least=1, greatest=5)
        with pytest.raises(ValueError, match="same rounds"):
            ratio(ours, peer[:2], "wall_s")

    def test_a_straight_line_is_found_again(self) -> None:
        for rng in chances(20):
            start, slope = rng.uniform(1, 5), rng.uniform(0, 5)
            line = straight_line([(x, start + slope * x) for x in rng.sample(range(100), 5)])
            assert [line.start, line.slope] == pytest.approx([start, slope])
            assert line.worst_share < 1e-9
        with pytest.raises(ValueError, match="two different places"):
            straight_line([(1, 2), (1, 3)])

    def test_a_run_is_disturbed_by_others_if_it_is_long_enough_to_tell(self) -> None:
        found = [
            Sample(wall_s=wall_s, cpu_s=1.0, foreign_cores=foreign).is_disturbed(2)
            for wall_s, foreign in ((1.0, 0.3), (1.0, 0.5), (0.1, 9.0))
        ]
        assert found == [False, True, False]

    @pytest.mark.parametrize(
        ("value", "text"),
        [(None, "-"), (0, "0.00"), (1234.5, "1,234"), (12.34, "12.3"), (1.234, "1.23"), (0.0123, "0.0123")],
    )
    def test_a_number_has_three_digits(self, value: float | None, text: str) -> None:
        assert number(value) == text


class TestChecksums:
    def test_neither_order_nor_batches_matter_and_every_column_does(self) -> None:
        for rng in chances(20):
            rows = [[rng.randrange(-5, 100) for _ in COLUMNS] for _ in range(rng.randrange(2, 30))]
            mixed = rng.sample(rows, len(rows))
            cut = rng.randrange(len(rows))
            whole = checksum([table_of(rows)])
            assert checksum([table_of(mixed[:cut]), table_of(mixed[cut:])]) == whole
            place = rng.randrange(len(COLUMNS))
            changed = [list(row) for row in rows]
            chosen = next((row for row in changed if row[0] != CLOSING_KEY), None)
            if chosen is not None:
                chosen[place] += 1_000
                assert checksum([table_of(changed)]) != whole

    def test_the_closing_record_does_not_count(self) -> None:
        row = [1, 2, 3, 4, 5, 6, 7]
        assert checksum([table_of([row, [CLOSING_KEY, *row[1:]]])]) == checksum([table_of([row])])

    def test_unequal_results_are_refused(self) -> None:
        require_equal("b", {"x": SUM, "y": SUM})
        with pytest.raises(UnequalResults, match=r"bench b: x computed .* but y computed"):
            require_equal("b", {"x": SUM, "y": replace(SUM, mix=5)})


def table_of(rows: list[list[int]]) -> pa.Table:
    return pa.table({name: pa.array([row[place] for row in rows], pa.int64()) for place, name in enumerate(COLUMNS)})


class TestAContest:
    def test_all_contestants_run_once_a_round_in_the_same_order(self, tmp_path: Path) -> None:
        diary: list[str] = []
        played = play(
            contest("a", "b"), settings(tmp_path), seat_for=fakes(diary, {"a": 1, "b": 2}), busy=idle, load=idle
        )
        assert diary == ["prepare a", "a", "prepare b", "b", "a", "b", "a", "b", "close b", "close a"]
        assert [len(entry.samples) for entry in played.entries] == [3, 3]

    def test_a_fresh_contestant_has_a_new_process_in_each_round(self, tmp_path: Path) -> None:
        diary: list[str] = []
        play(
            contest("a", is_fresh=True),
            settings(tmp_path, rounds=2),
            seat_for=fakes(diary, {"a": 1}),
            busy=idle,
            load=idle,
        )
        assert diary[:6] == ["prepare a", "a", "close a"] * 2

    def test_a_contestant_that_cannot_take_part_is_shown(self, tmp_path: Path) -> None:
        played = play(contest("a", "b"), settings(tmp_path), seat_for=fakes([], {"a": 1}), busy=idle, load=idle)
        assert result_of(played)["entries"][1] == {"name": "b", "title": "b", "missing": "It is not installed."}

    def test_a_contestant_that_fails_is_out_and_the_others_go_on(self, tmp_path: Path) -> None:
        class Failing(FakeSeat):
            def run(self) -> Ran:
                raise SeatFailed(f"{self.name} ended\nTraceback")

        def seat_for(name: str, *_: Any) -> FakeSeat:  # noqa: ANN401
            return (Failing if name == "b" else FakeSeat)(name, walls={"a": 1, "b": 1}, diary=[], checksums={})

        played = play(contest("a", "b"), settings(tmp_path), seat_for=seat_for, busy=idle, load=idle)
        assert [(len(one.samples), one.missing) for one in played.entries] == [(3, ""), (0, "It failed: b ended")]

    @pytest.mark.parametrize(("equal", "is_refused"), [("all", True), ("rounds", False), ("none", False)])
    def test_other_results_end_the_bench(self, equal: Equality, is_refused: bool, tmp_path: Path) -> None:  # noqa: FBT001
        seats = fakes([], {"a": 1, "b": 1}, b=replace(SUM, total=9))
        if not is_refused:
            play(contest("a", "b", equal=equal), settings(tmp_path), seat_for=seats, busy=idle, load=idle)
            return
        with pytest.raises(UnequalResults):
            play(contest("a", "b", equal=equal), settings(tmp_path), seat_for=seats, busy=idle, load=idle)

    def test_a_loaded_machine_is_marked_or_refused(self, tmp_path: Path) -> None:
        assert why_loaded(2.5, 0.5, cores=2) is None
        assert why_loaded(None, 0.5, cores=2) is None
        assert "was 2.7 on 2 cores" in str(why_loaded(2.7, 0.1, cores=2))
        assert "used 0.7 of 2 cores" in str(why_loaded(None, 0.7, cores=2))
        seats = fakes([], {"a": 1})
        played = play(contest("a"), settings(tmp_path, rounds=1), seat_for=seats, busy=lambda: 1.9, load=idle)
        assert "1.9 of 2 cores" in played.disturbed[0]
        with pytest.raises(MachineLoaded, match="bench test, round 1"):
            play(contest("a"), settings(tmp_path, refuses_load=True), seat_for=seats, busy=lambda: 1.9, load=idle)


class TestThePage:
    def results(self, tmp_path: Path) -> dict[str, Any]:
        targets = (
            Target(unit="ratio", must=2, aim=9, ours="a", peer="b"),
            Target(unit="seconds", must=0.5, aim=0.1, ours="a"),
            Target(unit="mb", must=20, aim=10, ours="a", role="tree"),
            Target(unit="ratio", must=2, aim=9, ours="a", peer="c"),
        )
        asked = contest("a", "b", "c", targets=targets)
        played = play(asked, settings(tmp_path), seat_for=fakes([], {"a": 1, "b": 3}), busy=idle, load=idle)
        machine = {
            "cpu": "x", "cores": 2, "memory_gb": 1, "system": "s", "python": "3", "java": "17", "commit": "abc",
            "date": "today", "versions": {"numpy": "2", "polars": "1"},
        }  # fmt: skip
        return {"machine": machine, "size": "S", "contests": [result_of(played)]}

    def test_every_figure_is_on_the_page(self, tmp_path: Path) -> None:
        found = pages(json.loads(json.dumps(self.results(tmp_path))))
        text = found["explanation/benchmarks.md"]
        assert "| b | 3.00 (3.00 to 3.00) | 6.00 (6.00 to 6.00) | 0.167 | 10.0 | 3.00 (3.00 to 3.00) |" in text
        assert "Not measured: c. It is not installed." in text
        assert "| pin | 1.00 | 2.00 |" in text
        assert "| process: jvm | 1.50 |" in text
        verdicts = [line.split("|")[-2].strip() for line in text.splitlines() if "[A < B](#test)" in line]
        assert verdicts == ["met", "MISSED", "aim reached", "not measured"]

    def test_a_plot_is_xml_with_one_bar_for_each_contestant(self, tmp_path: Path) -> None:
        svg = ET.fromstring(pages(self.results(tmp_path))["benchmarks/test.svg"])  # noqa: S314 - ours
        assert len(svg.findall("{http://www.w3.org/2000/svg}rect")) == 1 + 2

    def test_results_of_one_run_are_kept_together(self, tmp_path: Path) -> None:
        before = self.results(tmp_path)
        again = {**before, "contests": [{**before["contests"][0], "name": "other"}]}
        assert [one["name"] for one in merged(before, again)["contests"]] == ["test", "other"]
        moved = {**again, "machine": {**again["machine"], "commit": "def"}}
        assert [one["name"] for one in merged(before, moved)["contests"]] == ["other"]
        assert merged(None, again) == again


class TestTheSuite:
    def test_every_contestant_has_a_place_and_every_target_a_contestant(self) -> None:
        for size in SIZES:
            contests = suite(size)
            assert len({one.name for one in contests}) == len(contests)
            for one in contests:
                assert {name.partition("@")[0] for name in one.contestants} <= PLACES.keys()
                assert {name for target in one.targets for name in (target.ours, target.peer) if name} <= {
                    *one.contestants
                }

    @pytest.mark.parametrize("one", [one for one in suite("S") if one.source == "memory"], ids=lambda one: one.name)
    def test_contestants_in_memory_compute_the_same(self, one: Contest, tmp_path: Path) -> None:
        found = {}
        for name in one.contestants:
            if name == "flink":
                continue  # it starts a JVM for the whole process; `make bench` compares its results
            player = contestant(name)
            workload = replace(one.workload, keys=5, density=1_000)
            job = Job(bench=one.name, workload=workload, records=1_000, seed=3, cores=1, log="", scratch=str(tmp_path))
            try:
                player.prepare(replace(job, options={"cache": str(ROOT / ".bench")}))
            except CannotTakePart:
                assert name == "bytewax"  # it is not installed, except after `make bench-bytewax`
                continue
            player.run()
            found[name] = player.check()
        require_equal(one.name, found)
        assert all(checked.rows for checked in found.values())

    def test_too_large_a_job_for_the_operator_is_refused(self) -> None:
        job = Job(bench="x", workload=WORKLOAD, records=10**9, seed=1, cores=1, log="", scratch="")
        with pytest.raises(CannotTakePart, match="1,000,000,000 records"):
            contestant("operator").prepare(job)


@pytest.mark.parametrize("contest", suite("M"), ids=lambda contest: contest.name)
def test_a_contest_without_a_peer_has_no_target_beside_it(contest: Contest) -> None:
    peers = contest.contestants[1:]
    alone = leaving_out(contest, peers)
    assert alone.contestants == contest.contestants[:1]
    assert all(target.ours in alone.contestants and not target.peer for target in alone.targets)
    assert leaving_out(contest, ()) == contest
