"""The pipelines of the matrix: families of choices, each turned into a document that the grammar accepts or refuses."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Final

import yaml

from jobs.engine.engine import Engine
from jobs.engine.window_spec import engine
from jobs.pipeline.files import build_pipeline
from jobs.pipeline.log_schema import validate_against_schema
from jobs.pipeline.models.pipeline import Pipeline
from tests.matrix.log import COLUMNS, HOURS, TABLE
from tests.matrix.pairs import Choice, Pair, Pairs
from windowlib.errors import SpecError

_FORMS: Final[Mapping[str, Any]] = yaml.safe_load((Path(__file__).parent / "forms.yaml").read_text(encoding="utf-8"))
_ARRIVALS: Final = {"given": {"arrival_time": {"column": "arrived_ms", "unit": "ms"}}, "absent": {}}
OWN_WINDOWS: Final = ("windows", "counted", "simple")
"""All windows of our own; those whose fired records readers can count; those that SQL can read from the log."""
FAMILIES: Final = (*OWN_WINDOWS, "process", "storm", "atlas")
"""Beside them functions without windows, Storm's windows, Atlas's stages."""
COUNTED: Final = {"evictor": ("none",), "compute": ("plain", "exact", "places"), "arrival": ("given",)}
SIMPLE: Final = {
    "windows": ("tumbling", "offset", "sliding", "gaps", "session", "dynamic"), "time": ("event",),
    "trigger": ("default",), "evictor": ("none",), "lateness": ("none",), "combiner": ("end",),
    "leftovers": ("refuse",), "compute": ("plain", "extremes"), "watermark": ("wide", "bounded", "ascending", "legacy"),
}  # fmt: skip
"""The choices of the two smaller families."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One pipeline of the matrix: its choices, its document, and the pipeline built from it."""

    family: str
    choice: Choice
    seed: int
    document: Mapping[str, Any]
    pipeline: Pipeline
    engine: Engine

    def named(self, name: str) -> "Case":
        """Return the same pipeline with another name. Atlas's dead letters contain the name."""
        pipeline = build_pipeline({**self.document, "pipeline": name}, source="matrix.yaml")
        return replace(self, pipeline=pipeline, engine=engine(pipeline, COLUMNS))

    @property
    def forgets_sessions(self) -> bool:
        """Return whether Flink may lose the contents of a session when one with the same bounds is merged (F1)."""
        return self.choice.get("windows") in ("dynamic", "function") and self.choice["semantics"] == "flink"

    def __str__(self) -> str:
        """Return the text of a failure: the seed, the choices, the document."""
        chosen = ", ".join(f"{name}={value}" for name, value in self.choice.items())
        text = yaml.safe_dump(dict(self.document), sort_keys=False, allow_unicode=True)
        return f"matrix of {self.family}, HINDCAST_SEED={self.seed}: {chosen}\n{text}"


@dataclass(slots=True, kw_only=True)
class Matrix:
    """The cases of one family. `tried` counts the documents given to the grammar, `refused` those that it refused."""

    family: str
    seed: int
    tried: int = 0
    refused: int = 0
    refused_pairs: list[Pair] = field(default_factory=list)
    _known: dict[tuple[str, ...], tuple[dict[str, Any], Pipeline, Engine] | None] = field(default_factory=dict)

    def cases(self) -> Iterator[Case]:
        """Yield the cases until every pair of choices that the grammar allows is covered."""
        pairs = Pairs(factors(self.family), self._is_allowed, random.Random(f"{self.family} {self.seed}"))
        self.refused_pairs = pairs.refused
        for choice in pairs.choices():
            built = self._built(choice)
            assert built is not None, "only what is allowed is chosen"
            document, pipeline, run = built
            yield Case(
                family=self.family,
                choice=dict(choice),
                seed=self.seed,
                document=document,
                pipeline=pipeline,
                engine=run,
            )

    def summary(self, played: int) -> str:
        """Return the counts as text, for the output of a test."""
        return (
            f"matrix of {self.family}, HINDCAST_SEED={self.seed}: {played} pipelines; the grammar refused "
            f"{self.refused} of {self.tried} combinations that were tried, {len(self.refused_pairs)} pairs among them"
        )

    def _is_allowed(self, choice: Choice) -> bool:
        return self._built(choice) is not None

    def _built(self, choice: Choice) -> tuple[dict[str, Any], Pipeline, Engine] | None:
        place = tuple(choice.values())
        if place not in self._known:
            self.tried += 1
            self._known[place] = self._ask(choice)
            self.refused += self._known[place] is None
        return self._known[place]

    def _ask(self, choice: Choice) -> tuple[dict[str, Any], Pipeline, Engine] | None:
        whole = document(self.family, choice)
        try:
            pipeline = build_pipeline(whole, source="matrix.yaml")
            validate_against_schema(pipeline, COLUMNS)
            run = engine(pipeline, COLUMNS)
        except SpecError:
            return None
        return whole, pipeline, run


def sample(seed: int, counts: Mapping[str, int]) -> list[Case]:
    """Return the first so many cases of each family."""
    return [
        case for family, count in counts.items() for case in islice(Matrix(family=family, seed=seed).cases(), count)
    ]


@cache
def factors(family: str) -> dict[str, tuple[str, ...]]:
    """Return the choices of a family: factor -> values, the plain value first."""
    if family in OWN_WINDOWS[1:]:
        return {**factors("windows"), **(COUNTED if family == "counted" else SIMPLE)}
    own = {name: tuple(forms) for name, forms in _FORMS[family].items()}
    beside = {"keys": tuple(_FORMS["keys"]), "arrival": tuple(_ARRIVALS)}
    if family in ("windows", "storm"):
        beside["compute"] = tuple(_FORMS["compute"])
    if family in ("windows", "process"):
        beside |= {"watermark": tuple(_FORMS["watermark"]), "semantics": tuple(_FORMS["semantics"])}
    if family == "process":  # its function sets timers of both times
        beside |= {"arrival": ("given",), "watermark": tuple(form for form in _FORMS["watermark"] if form != "none")}
    return own | beside


def document(family: str, choice: Choice, *, name: str = "matrix") -> dict[str, Any]:
    """Return the pipeline file of a choice as data."""
    log = {
        "table": TABLE,
        **_FORMS["keys"][choice["keys"]],
        "event_time": {"column": "at_ms", "unit": "ms"},
        **_ARRIVALS[choice["arrival"]],
        "slice": {"by": "hour", "every": "1h", "first": f"{HOURS[0]}:00", "last": f"{HOURS[-1]}:00"},
    }
    whole = {"pipeline": name, "log": log, **_PARTS[family](choice)}
    if _FORMS["watermark"].get(choice.get("watermark")) is not None:
        whole["watermark"] = _FORMS["watermark"][choice["watermark"]]
    if "compute" in choice:
        whole |= _FORMS["compute"][choice["compute"]]
    return whole | ({} if choice["semantics"] == "strict" else {"semantics": choice["semantics"]})


def _merged(family: str, choice: Choice, *, but: tuple[str, ...] = ()) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for factor, forms in _FORMS[family].items():
        if factor not in ("semantics", *but):
            found |= forms[choice[factor]]
    return found


def _atlas(choice: Choice) -> dict[str, Any]:
    [(stage, options)] = _FORMS["atlas"]["window"][choice["window"]].items()
    more = {
        name: value
        for part in ("lateness", "idle", "boundary")
        for name, value in _FORMS["atlas"][part][choice[part]].items()
    }
    whole = {**options, **more, "pipeline": _FORMS["atlas"]["pipeline"][choice["pipeline"]]}
    return {"windows": {"atlas": {stage: whole, **_FORMS["atlas"]["partition"][choice["partition"]]}}}


_PARTS: Final = {
    "windows": lambda choice: {"windows": _merged("windows", choice)},
    "counted": lambda choice: {"windows": _merged("windows", choice)},
    "simple": lambda choice: {"windows": _merged("windows", choice)},
    "process": lambda choice: _merged("process", choice),
    "storm": lambda choice: {"windows": {"storm": _merged("storm", choice)}},
    "atlas": _atlas,
}
