"""Beam's trigger transcripts, read from the installed apache-beam wheel and played through the window operator.

One unit of a transcript's time is 1 ms here. A transcript shows a window as [start, last instant], as `last_ms` does.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import yaml

from windowlib import beam
from windowlib.functions.window_functions import aggregate
from windowlib.keyed.snapshots import WindowStateRow
from windowlib.profiles import BEAM
from windowlib.records.records import Pane
from windowlib.testkit.harness import Harness
from windowlib.triggers.protocol import FINISHED
from windowlib.windows.assigners import Assigner, Global, Session, Tumbling
from windowlib.windows.spec import WindowSpec

Transcript = Mapping[str, Any]
Shown = dict[str, Any]


class TranscriptFailed(AssertionError):  # noqa: N818 - it says what happened
    """The operator and the transcript disagree."""


class CustomTimestamps(Tumbling):
    """Beam's own test assigner: windows of fixed size that transform output times."""

    def output_time_ms(self, timestamp_ms: int) -> int:
        return timestamp_ms + 100


def transcripts() -> Iterator[Transcript]:
    """All documents of the file, in their order."""
    found = distribution("apache-beam").locate_file("apache_beam/testing/data/trigger_transcripts.yaml")
    yield from yaml.safe_load_all(Path(str(found)).read_text(encoding="utf-8"))


ASSIGNERS: Mapping[str, Any] = {
    "FixedWindows": lambda size: Tumbling(size_ms=size),
    "Sessions": lambda gap: Session(gap_ms=gap),
    "GlobalWindows": Global,
    "CustomTimestampingFixedWindowsWindowFn": lambda size: CustomTimestamps(size_ms=size),
}
TRIGGERS: Mapping[str, Any] = {name: kind for name, kind in vars(beam).items() if isinstance(kind, type)}


def built(text: str, names: Mapping[str, Any]) -> Any:  # noqa: ANN401 - an assigner or a trigger
    """Build what an expression such as `AfterWatermark(early=AfterCount(3))` says; empty parentheses may be absent."""

    def value(node: ast.expr) -> Any:  # noqa: ANN401
        match node:
            case ast.Constant(value=constant):
                return constant
            case ast.Name(id=name):
                return names[name]()
            case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
                return names[name](*map(value, args), **{str(one.arg): value(one.value) for one in keywords})
            case _:
                raise ValueError(f"cannot read {text!r}")

    return value(ast.parse(text.strip(), mode="eval").body)


def spec_of(transcript: Transcript) -> WindowSpec:
    assigner: Assigner = built(transcript.get("window_fn", "GlobalWindows"), ASSIGNERS)
    combiner = transcript.get("timestamp_combiner", "OUTPUT_AT_EOW").removeprefix("OUTPUT_AT_").lower()
    return WindowSpec(
        assigner=assigner,
        function=(aggregate("collect_list", "bigint"),),
        trigger=built(transcript.get("trigger_fn", "Default"), TRIGGERS),
        accumulation=transcript.get("accumulation_mode", "accumulating"),
        timestamp_combiner="end_of_window" if combiner == "eow" else combiner,
        allowed_lateness_ms=transcript.get("allowed_lateness", 0),
        leftovers="report",
        profile=BEAM,
    )


def shown(pane: Pane) -> Shown:
    return {
        "window": [pane.window.start_ms, pane.window.last_ms],
        "values": sorted(pane.values[0]),
        "timestamp": pane.timestamp_ms,
        "index": pane.pane_index,
        "nonspeculative_index": pane.nonspeculative_index,
        "early": pane.timing == "EARLY",
        "late": pane.timing == "LATE",
        "final": pane.is_last,
    }


class Player:
    """Plays one transcript."""

    def __init__(self, transcript: Transcript) -> None:
        self.harness = Harness(spec_of(transcript))
        self._steps = [next(iter(step.items())) for step in transcript["transcript"]]
        self._taken = 0
        self._newest = 0

    def play(self) -> None:
        for action, what in self._steps:
            if action == "expect":
                self._expect(what)
                continue
            self._nothing_else(f"before {action}: {what}")
            match action:
                case "input":
                    for at_ms in what:
                        self.harness.record("key", (at_ms,), at_ms=at_ms)
                        self._newest = max(self._newest, at_ms)
                case "watermark":
                    self.harness.watermark(what)
                case "state":
                    self._state(what)
                case _:
                    raise TranscriptFailed(f"Unknown action {action}")
        self._nothing_else("at the end")
        self.harness.check_resumable()

    def _expect(self, expected: Sequence[Shown]) -> None:
        """Match each expected pane with one that came, by the attributes that are given."""
        came = [shown(pane) for pane in self._new()]
        for wanted in expected:
            matching = [one for one in came if all(one[name] == wanted[name] for name in wanted)]
            if not matching:
                raise TranscriptFailed(f"Unmatched output {wanted} in {came}")
            came.remove(matching[0])
        if came:
            raise TranscriptFailed(f"Unexpected output {came} beside {expected}")

    def _nothing_else(self, when: str) -> None:
        came = [shown(pane) for pane in self._new()]
        if came:
            raise TranscriptFailed(f"Unexpected output {came} {when}")

    def _new(self) -> list[Pane]:
        panes = self.harness.panes()[self._taken :]
        self._taken += len(panes)
        return panes

    def _state(self, wanted: Mapping[str, Any]) -> None:
        """Look at the windows: live, gone, or tombstones. The step has no watermark of its own: the data's is meant."""
        self.harness.watermark(self._newest)
        rows = {(row.window_start_ms, row.window_end_ms): row for row in self.harness.operator.snapshot().windows}

        def found(name: str) -> list[WindowStateRow | None]:
            return [rows.get((start, last + 1)) for start, last in wanted.get(name, ())]

        for name, states in {name: found(name) for name in wanted}.items():
            kinds = ["absent" if row is None else _kind(row) for row in states]
            if kinds != [name] * len(kinds):
                raise TranscriptFailed(f"State {name} of {wanted[name]} is {kinds}")


def _kind(row: WindowStateRow) -> str:
    return "tombstone" if FINISHED in row.trigger_state and not row.edge_count else "present"
