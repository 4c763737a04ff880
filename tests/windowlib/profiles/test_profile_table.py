"""Tests of docs/reference/profiles.md, cell by cell: each row of its tables is a test, each column a parameter.

A parameter holds the words of the cell and the expected result. The last tests compare the words with the page.
W is the watermark in Flink's sense, e a window's end, L the allowed lateness, t a record's time.
"""

import sys
from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.support.places import ROOT
from tests.windowlib.profiles.engines import (
    ATLAS,
    STORMS,
    Played,
    default_lateness,
    driver,
    first_clock_at,
    hopping,
    ms,
    of_assigner,
    of_stage,
    of_storm,
    on_the_clock,
    sessions,
    through_checkpoint,
    watermark_of,
)
from tests.windowlib.profiles.rows import WORDS, Refused, cells_of, places_of, row, storms_cells, without_row
from windowlib.beam import AfterCount, AfterWatermark
from windowlib.errors import InvariantBroken, SpecError
from windowlib.triggers.flink import CountReached
from windowlib.watermarks.generators import Bounded, EmitPeriodically
from windowlib.watermarks.sources_driver import SourcesSpec
from windowlib.watermarks.timeline import Arrival
from windowlib.windows.assigners import Tumbling
from windowlib.windows.evictors import KeepCount

Windows = list[tuple[int, int, list[int]]]

STORM: Final = {"storm": {"length": "10s"}}
STAGE: Final = {"atlas": {"$tumblingWindow": {"interval": ms(10), "pipeline": []}}}
TRIGGER: Final = {"trigger": {"count": 2}, "leftovers": "report"}
EVICTOR: Final = {"evictor": {"count": {"keep": 1}}}
NO_SESSIONS: Final = Refused("semantics: found 'storm', allowed for", STORM, instead={"session": {"gap": "10s"}})
NO_LATENESS: Final = Refused("takes no allowed_lateness", STORM, beside={"allowed_lateness": "3s"})


@row(
    strict=("`[s, e)`", [(10, 20, [10, 19]), (20, 30, [20])]),
    flink=("`[s, e)`", [(10, 20, [10, 19]), (20, 30, [20])]),
    storm=("`(s, e]`", [(0, 10, [10]), (10, 20, [19, 20])]),
    mongodb=("`[s, e)`", [(10, 20, [10, 19]), (20, 30, [20])]),
    beam=("`[s, e)`", [(10, 20, [10, 19]), (20, 30, [20])]),
)
def test_interval(column: str, expected: Windows) -> None:
    one = Played(hopping(column))
    one.records(10, 19, 20)
    one.watermark(1_000)
    assert one.windows() == expected


@row(
    strict=("merge", [(0, 20, [0, 10])]),
    flink=("merge", [(0, 20, [0, 10])]),
    storm=("not available: Storm has no sessions; they are refused", NO_SESSIONS),
    mongodb=("stay apart", [(0, 10, [0]), (10, 20, [10])]),
    beam=("stay apart", [(0, 10, [0]), (10, 20, [10])]),
)
def test_touching_sessions(column: str, expected: Windows) -> None:
    """The gap is 10 ms. At a distance of 9 ms all engines make one session, at 11 ms two."""
    for second_ms, windows in ((9, [(0, 19, [0, 9])]), (10, expected), (11, [(0, 10, [0]), (11, 21, [11])])):
        one = Played(sessions(column))
        one.records(0, second_ms)
        one.watermark(1_000)
        assert one.windows() == windows


@row(
    strict=("joins it", ["assigned", "assigned"]),
    flink=("joins it", ["assigned", "assigned"]),
    storm=("not available: Storm has no sessions; they are refused", NO_SESSIONS),
    mongodb=("joins it", ["assigned", "assigned"]),
    beam=("late, by its own session `[t, t + gap)`", ["assigned", "late"]),
)
def test_late_for_an_open_session(column: str, expected: list[str]) -> None:
    """The open session is [20, 30). The session [14, 24) of a record at 14 is over from 23 on, in Beam from 25 on."""
    for watermark_ms, fate in zip((24, 25), expected, strict=True):
        one = Played(sessions(column))
        one.record(20)
        one.watermark(watermark_ms)
        assert one.record(14) == fate
        one.watermark(1_000)
        windows = [(start, end, set(times)) for start, end, times in one.windows()]
        assert windows == ([(14, 30, {14, 20})] if fate == "assigned" else [(20, 30, {20})])


@row(
    strict=("log order", [14, 0, 7]),
    flink=("sessions concatenated in the order of a Java hash set", [0, 14, 7]),
    storm=("not available: Storm has no sessions; they are refused", NO_SESSIONS),
    mongodb=("log order", [14, 0, 7]),
    beam=("log order", [14, 0, 7]),
)
def test_order_in_merged_sessions(column: str, expected: list[int]) -> None:
    """The last record joins two sessions."""
    one = Played(sessions(column))
    one.records(14, 0, 7)
    one.watermark(1_000)
    assert one.windows() == [(0, 24, expected)]


@row(
    strict=("unassigned", ("unassigned", "unassigned", {})),
    flink=("unassigned; late from `W >= t + L` on, `late_in_gap` (F5)", ("unassigned", "late", {})),
    storm=("assigned, but in no window: `closed:between_windows`", ("assigned", "late", {"closed:between_windows": 1})),
    mongodb=("unassigned", ("unassigned", "unassigned", {})),
    beam=("unassigned", ("unassigned", "unassigned", {})),
    storm_strict=("unassigned", ("unassigned", "unassigned", {})),
)
def test_hop_with_gaps(column: str, expected: tuple[str, str, dict[str, int]]) -> None:
    """Windows of 10 ms every 25 ms. 62 is in none of them, whether they start or end at the multiples of 25."""
    on_time, behind, closed = expected
    spec = hopping(column, hop_ms=25)
    one = Played(spec)
    assert one.record(62) == on_time
    one.watermark(1_000)
    assert one.windows() == []
    assert {term: count for term, count in one.edges.items() if term != "new"} == closed

    two = Played(spec)
    two.watermark(61)
    assert two.record(62) == on_time
    two.watermark(62)
    assert two.record(62) == behind
    reasons = {"flink": ["late_in_gap"], "storm": ["late_stream"]}
    assert [late.reason for late in two.late()] == reasons.get(column, [])
    assert len(two.unassigned()) == (on_time, behind).count("unassigned")


@row(
    strict=("max - d - 1", 94),
    flink=("max - d - 1", 94),
    storm=("max - lag - 1 (Storm: max - lag)", 94),
    mongodb=("max - 1 (Atlas: max)", 99),
    beam=("the runner's choice; here: max - d - 1", 94),
)
def test_watermark(column: str, expected: int) -> None:
    """The delay or lag is 5 ms."""
    assert watermark_of(driver(column, delay_ms=5), 90, 100, 97) == expected
    assert watermark_of(driver(column, delay_ms=5), 90, 100, 101) == expected + 1


@row(
    strict=("the least", [89]),
    flink=("the least", [89]),
    storm=("the least", [89]),
    mongodb=("the greatest; the least with `partitionIdleTimeout`", [104, 89]),
    beam=("the runner's choice; here: the least", [89]),
)
def test_watermark_of_several_sources(column: str, expected: list[int]) -> None:
    makers = [driver(column)]
    if column == ATLAS:
        source = {"partitionIdleTimeout": ms(60_000)}
        makers.append(of_stage("$tumblingWindow", interval=ms(10), source=source).driver())
    assert [watermark_of(maker, 90, 105, sources="ab") for maker in makers] == expected


@row(
    strict=("with each record", 300),
    flink=("with each record; Flink's ticks are `emit: {every: 200ms}`", 300),
    storm=("with the ticks of `watermark_interval`, 1 s", 1_000),
    mongodb=("with each record", 300),
    beam=("the runner's choice; here: with each record", 300),
)
def test_watermark_rises(column: str, expected: int) -> None:
    """Checks at which time of the clock the watermark of a record that arrived at 300 ms is emitted."""
    arrival = Arrival(0, 100, 300)
    assert first_clock_at(driver(column), 99, arrival) == expected
    if column == "flink":
        ticking = SourcesSpec(generator=Bounded(), emission=EmitPeriodically(every_ms=200))
        assert first_clock_at(ticking.build(), 99, arrival) == 400


@row(
    strict=("`W >= e - 1`", 9),
    flink=("`W >= e - 1`", 9),
    storm=("`W >= e - 1` (Storm: `>= e`)", 9),
    mongodb=("`W >= e - 1 + L` (Atlas: `>= e + L`)", 12),
    beam=("`W >= e`", 10),
    storm_strict=("`W >= e`, when the window is complete (S1)", 10),
)
def test_fires(column: str, expected: int) -> None:
    """The window ends at 10. The lateness is 3 ms if the engine has one."""
    one = Played(hopping(column, lateness_ms=3))
    one.record(5)
    one.watermark(expected - 1)
    assert one.windows() == []
    one.watermark(expected)
    assert one.windows() == [(0, 10, [5])]


@row(
    strict=("`t >= e`", 10),
    flink=("`t >= e`", 10),
    storm=("`t >= e`", 10),
    mongodb=("`t >= e + L`", 13),
    beam=("the runner's choice; here: `t >= e + 1`", 11),
    storm_strict=("`t >= e + 1`", 11),
)
def test_record_that_fires_it(column: str, expected: int) -> None:
    """Checks which record raises the watermark that fires a window, without delay or lag. L is 3 ms."""
    for at_ms, windows in ((expected - 1, []), (expected, [(0, 10)])):
        one = Played(hopping(column, lateness_ms=3))
        one.replay(driver(column), 5, at_ms)
        assert [(start, end) for start, end, _ in one.windows()] == windows


def check_late_from(column: str, play: Callable[[], Played], watermark_ms: int) -> None:
    """Check that a record at 5 is late from this watermark on, and is not late at the watermark 1 ms before."""
    one = play()
    one.watermark(watermark_ms - 1)
    assert one.record(5) == "assigned"
    assert one.late() == []
    two = play()
    two.watermark(watermark_ms)
    assert two.record(5) == "late"
    (late,) = two.late()
    assert (late.record.timestamp_ms, late.missed, late.missed_all) == (5, ((0, 10),), True)
    assert late.late_by_ms == 0, column


@row(
    strict=("`W >= e - 1 + L`", 12),
    flink=("`W >= e - 1 + L`", 12),
    storm=("`W >= t` (Storm: `> t`), regardless of its windows", 5),
    mongodb=("`W >= e - 1 + L` (Atlas: `>= e + L`)", 12),
    beam=("`W > e + L`", 14),
)
def test_late_when(column: str, expected: int) -> None:
    """The window of a record at 5 ends at 10. The lateness is 3 ms if the engine has one."""
    check_late_from(column, lambda: Played(hopping(column, lateness_ms=3)), expected)


@row(
    strict=("L = 0", 9),
    flink=("L = 0", 9),
    storm=("not available: `allowed_lateness` is refused", NO_LATENESS),
    mongodb=("L = 3 s", 3_009),
    beam=("L = 0", 11),
)
def test_default_lateness(column: str, expected: int) -> None:
    check_late_from(column, lambda: Played(default_lateness(column)), expected)


@row(
    strict=("in the open windows; a late row lists the others", ("assigned", False, [(10, 30, [15])])),
    flink=("in the open windows; a late row lists the others", ("assigned", False, [(10, 30, [15])])),
    storm=("late for all windows", ("late", True, [])),
    mongodb=(
        "in the open windows; a late row and a dead letter list the others",
        ("assigned", False, [(10, 30, [15])]),
    ),
    beam=("in the open windows; a late row lists the others", ("assigned", False, [(10, 30, [15])])),
)
def test_partly_late(column: str, expected: tuple[str, bool, Windows]) -> None:
    """Windows of 20 ms every 10 ms. At 21 the first of the two windows of a record at 15 is over in all engines."""
    fate, missed_all, windows = expected
    one = Played(hopping(column, size_ms=20))
    one.watermark(21)
    assert one.record(15) == fate
    missed = [(late.missed, late.missed_all) for late in one.late()]
    assert missed == [(((0, 20), (10, 30)) if missed_all else ((0, 20),), missed_all)]
    assert one.side_outputs() == (["dead_letters"] if column == ATLAS else [])
    one.watermark(1_000)
    assert one.windows() == windows


@row(
    strict=("`late_records`", ("past_cleanup", [])),
    flink=("`late_records` (Flink: side output, else a counter)", ("past_cleanup", [])),
    storm=("`late_records`: `late_stream` with `late: true`, else `late_logged`", ("late_stream", [])),
    mongodb=("`late_records` and a dead letter", ("Input document arrived late.", ["dead_letters"])),
    beam=("`late_records` (Beam: dropped)", ("past_cleanup", [])),
)
def test_late_goes_to(column: str, expected: tuple[str, list[str]]) -> None:
    reason, side_outputs = expected
    cases = [(hopping(column), reason)]
    if column in STORMS:
        cases.append((of_storm(column, late=False), "late_logged"))
    for spec, expected_reason in cases:
        one = Played(spec)
        one.watermark(100)
        one.record(5)
        assert [late.reason for late in one.late()] == [expected_reason]
        assert one.side_outputs() == side_outputs


@row(
    strict=("a LATE pane per record", [("ON_TIME", [5]), ("LATE", [5, 6]), ("LATE", [5, 6, 7])]),
    flink=("a LATE pane per record", [("ON_TIME", [5]), ("LATE", [5, 6]), ("LATE", [5, 6, 7])]),
    storm=("not available: `allowed_lateness` is refused", NO_LATENESS),
    mongodb=("none: the only pane is fired after the lateness", [("ON_TIME", [5, 6, 7])]),
    beam=("a LATE pane per record", [("ON_TIME", [5]), ("LATE", [5, 6]), ("LATE", [5, 6, 7])]),
)
def test_refire_inside_lateness(column: str, expected: list[tuple[str, list[int]]]) -> None:
    """The trigger is the default one."""
    one = Played(hopping(column, lateness_ms=3))
    one.record(5)
    one.watermark(11)
    one.records(6, 7)
    one.watermark(1_000)
    assert one.timings() == expected


@row(
    strict=("ON_TIME", "ON_TIME"),
    flink=("ON_TIME", "ON_TIME"),
    storm=("not available: `allowed_lateness` is refused", NO_LATENESS),
    mongodb=("ON_TIME", "ON_TIME"),
    beam=("LATE", "LATE"),
)
def test_first_pane_is_after_the_end(column: str, expected: str) -> None:
    """Checks the timing of a window's first pane if the first record came after the end, within the lateness."""
    one = Played(hopping(column, lateness_ms=3))
    one.watermark(11)
    one.record(5)
    one.watermark(1_000)
    assert one.timings() == [(expected, [5])]


@row(
    strict=("no pane", [("EARLY", [5])]),
    flink=("no pane", [("EARLY", [5])]),
    storm=("no pane", [("ON_TIME", [5])]),
    mongodb=("no pane", [("ON_TIME", [5])]),
    beam=("no pane; an ON_TIME pane after EARLY panes", [("EARLY", [5]), ("ON_TIME", [])]),
)
def test_empty_window(column: str, expected: list[tuple[str, list[int]]]) -> None:
    """A window without records never fires. A window without new records since an EARLY pane fires in Beam only.

    Storm and Atlas have no EARLY panes.
    """
    spec = hopping(column)
    gap = Played(spec)
    gap.records(5, 995)
    gap.watermark(2_000)
    assert [window for window in gap.windows() if window[1] <= 990 or not window[2]] == [(0, 10, [5])]

    if column not in (*STORMS, ATLAS):
        early = AfterWatermark(early=AfterCount(1), late=AfterCount(1))
        spec = of_assigner(column, Tumbling(size_ms=10), trigger=early, accumulation="discarding")
    one = Played(spec)
    one.record(5)
    one.watermark(1_000)
    assert one.timings() == expected


@row(
    strict=("no pane", []),
    flink=("an empty pane (F7)", [(0, 10, [])]),
    storm=("not available: `evictor` is refused", Refused("takes no evictor", STORM, beside=EVICTOR)),
    mongodb=("not available: `evictor` is refused", Refused("takes no evictor", STAGE, beside=EVICTOR)),
    beam=("no pane (Beam has no evictors)", []),
)
def test_evictor_left_nothing(column: str, expected: Windows) -> None:
    one = Played(of_assigner(column, Tumbling(size_ms=10), evictor=KeepCount(count=0)))
    one.record(5)
    one.watermark(1_000)
    assert one.windows() == expected
    assert one.edges == {"new": 1, "closed:evicted": 1}


@row(
    strict=("refused without `leftovers: report` or `fire`", SpecError),
    flink=("`closed:never_fired`, `closed:left_over` (F9)", None),
    storm=("not available: `trigger` is refused", Refused("takes no trigger", STORM, beside=TRIGGER)),
    mongodb=("not available: `trigger` is refused", Refused("takes no trigger", STAGE, beside=TRIGGER)),
    beam=("refused without `leftovers: report` or `fire`", SpecError),
)
def test_trigger_left_some(column: str, expected: type[SpecError] | None) -> None:
    """Windows of one and of three records, with a trigger that fires for every two."""
    parts: dict[str, Any] = {"assigner": Tumbling(size_ms=10), "trigger": CountReached(2)}
    if expected is SpecError:
        with pytest.raises(SpecError, match=r"say what to do with them: leftovers: report .* or leftovers: fire"):
            of_assigner(column, **parts)
        parts["leftovers"] = "report"
    one = Played(of_assigner(column, **parts))
    one.records(5, 15, 15, 16)
    one.watermark(1_000)
    assert one.windows() == [(10, 20, [15, 15])]
    assert one.edges == {"new": 4, "closed:fired": 2, "closed:never_fired": 1, "closed:left_over": 1}


@row(
    strict=("yes", ("late", "late")),
    flink=("not after a failure (F2); yes at a slice's end", ("late", "assigned")),
    storm=("yes (Storm's own checkpoints: n/a)", ("late", "late")),
    mongodb=("yes", ("late", "late")),
    beam=("yes (Beam: the runner's choice)", ("late", "late")),
)
def test_watermark_in_checkpoint(column: str, expected: tuple[str, str]) -> None:
    """A restored operator receives a record for a window that has fired. Then the driver's own state is restored."""
    for after_failure, fate in zip((False, True), expected, strict=True):
        one = Played(hopping(column))
        one.record(5)
        one.watermark(20)
        one.resume(after_failure=after_failure)
        assert one.record(6) == fate
        one.watermark(20)
        assert [times for _, _, times in one.windows()] == ([[5]] if fate == "late" else [[5], [6]])
    before = driver(column)
    watermark_ms = watermark_of(before, 100)
    assert through_checkpoint(column, before).watermark_ms == watermark_ms == 99


@row(
    strict=("refused", InvariantBroken),
    flink=("accepted: windows open again", None),
    storm=("refused", InvariantBroken),
    mongodb=("refused", InvariantBroken),
    beam=("refused", InvariantBroken),
)
def test_watermark_goes_back(column: str, expected: type[Exception] | None) -> None:
    """Calls the operator directly, because no time driver lowers the watermark."""
    one = Played(hopping(column))
    one.record(5)
    one.watermark(20)
    if expected is not None:
        with pytest.raises(expected, match="go back from 20 to 3"):
            one.watermark(3)
        return
    one.watermark(3)
    assert one.record(5) == "assigned"
    one.watermark(20)
    assert one.windows() == [(0, 10, [5]), (0, 10, [5])]


@row(
    strict=("treated as any other time", ("assigned", [(-10, 0, [-5])])),
    flink=("treated as any other time", ("assigned", [(-10, 0, [-5])])),
    storm=("late at once (S4)", ("late", [])),
    mongodb=("treated as any other time", ("assigned", [(-10, 0, [-5])])),
    beam=("treated as any other time", ("assigned", [(-10, 0, [-5])])),
    storm_strict=("treated as any other time", ("assigned", [(-10, 0, [-5])])),
)
def test_before_1970(column: str, expected: tuple[str, Windows]) -> None:
    fate, windows = expected
    one = Played(hopping(column))
    assert one.record(-5) == fate
    one.watermark(1_000)
    assert one.windows() == windows
    assert [late.reason for late in one.late()] == (["S4_before_1970"] if fate == "late" else [])


@row(
    strict=("`e - 1`", 9), flink=("`e - 1`", 9), storm=("`e`", 10), mongodb=("`e - 1`", 9), beam=("`e - 1`", 9)
)  # fmt: skip
def test_event_time_of_a_pane(column: str, expected: int) -> None:
    """The event time is the last instant inside the window, which is `e` in Storm."""
    one = Played(hopping(column))
    one.record(5)
    one.watermark(1_000)
    assert [pane.timestamp_ms for pane in one.panes()] == [expected]


@row(
    strict=("`[s, e)`, fires at `e - 1`", (9, (0, 10))),
    flink=("`[s, e)`, fires at `e - 1`", (9, (0, 10))),
    storm=("`(s, e]`, counted from the first arrival, fires at `e + 1`", (15, (4, 14))),
    mongodb=("`[s, e)`, fires at `e`", (10, (0, 10))),
    beam=("`[s, e)`, fires at `e - 1` (Beam has no such windows)", (9, (0, 10))),
)
def test_windows_on_the_clock(column: str, expected: tuple[int, tuple[int, int]]) -> None:
    """A record arrives at 5. Records that arrive at the instant of the firing are processed before it."""
    fires_ms, bounds = expected
    one = Played(on_the_clock(column))
    one.operator.begin(5)
    one.clock(5)
    one.record(777)
    one.clock(fires_ms - 1)
    assert one.windows() == []
    one.clock(fires_ms)
    assert one.windows() == [(*bounds, [777])]


TESTS: Final = {name: test for name, test in vars(sys.modules[__name__]).items() if name.startswith("test_")}
STORMS_CELLS: Final = storms_cells(TESTS)


@pytest.mark.parametrize("name", STORMS_CELLS)
def test_storm_strict_equals_storm_in_the_rows_that_the_page_leaves_out(name: str) -> None:
    TESTS[name]("storm-strict", STORMS_CELLS[name])


PAGE: Final = (ROOT / "docs" / "reference" / "profiles.md").read_text(encoding="utf-8")


def test_the_cells_of_the_page_have_the_words_of_the_tests() -> None:
    assert cells_of(PAGE) == WORDS


def test_every_test_of_this_module_is_a_row_of_the_page() -> None:
    here = {name: test for name, test in vars(sys.modules[__name__]).items() if name.startswith("test_")}
    assert places_of(here) == WORDS.keys()
    assert here.keys() - {name for name, _ in WORDS} == {name for name in here if "_page" in name}


@pytest.mark.parametrize(
    "changed",
    [
        PAGE.replace("| merge |", "| stay apart |", 1),
        PAGE.replace("| merge |", "| |", 1),
        PAGE.replace("`test_fires`", "`test_fired`", 1),
        PAGE.replace("| strict | flink |", "| flink | strict |", 1),
        without_row(PAGE, "test_fires"),
    ],
    ids=["another word", "an empty cell", "another test", "another column", "a row is missing"],
)
def test_a_page_that_differs_in_a_cell_is_detected(changed: str) -> None:
    assert cells_of(changed) != WORDS
