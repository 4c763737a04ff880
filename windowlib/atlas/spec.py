"""What users write: a window stage as in MongoDB Atlas. It checks itself, and builds the operator and the driver."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from windowlib.atlas.atlas_operator import AtlasOperator, Windowing
from windowlib.atlas.clock_use import uses_now
from windowlib.atlas.dead_letters import DEAD_LETTERS, DeadLetterWriter
from windowlib.atlas.documents.json_documents import json_text
from windowlib.atlas.documents.log_columns import LogColumns
from windowlib.atlas.documents.places import Json, Place
from windowlib.atlas.expressions.expressions import compile_expression
from windowlib.atlas.expressions.forms import Expression
from windowlib.atlas.open_documents import STALE_MAX
from windowlib.atlas.policies import STRICT, AtlasProfile
from windowlib.atlas.stages.stages import STAGES, compile_pipeline
from windowlib.atlas.time_driver import AtlasDriver
from windowlib.atlas.window_stages import Hopping, Sessions, Source, Windows, read_windows
from windowlib.bounds import SAFE_TIME_MS
from windowlib.errors import SpecError
from windowlib.keyed.timers import KeyGroupRange

OUTPUT_COLUMNS: Final[Mapping[str, str]] = {"document": "string"}
"""The columns of a pane's values: a document, as JSON text."""
SIDE_OUTPUT_COLUMNS: Final[Mapping[str, Mapping[str, str]]] = {DEAD_LETTERS: {"document": "string"}}
"""The columns of each side output."""
_META: Final = "_stream_meta"
_ONE_BY_ONE: Final = frozenset(STAGES) - {"$group", "$sort", "$limit", "$count"}
"""Stages that look at one document at a time."""
_KEY_TYPES: Final = ("string", "boolean", "tinyint", "smallint", "int", "bigint", "date")
"""Types whose values are equal as keys exactly where they are equal as values of documents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AtlasSpec:
    """Which windows, and what happens inside. Comparable, hashable, and plain enough to be sent to a worker.

    Args:
        windows: the window stage.
        pipeline: the inner pipeline as JSON text.
        columns: the columns of the log that a record's value has.
        source: the source's options.
        letters: who writes dead letters.
        profile: the answers to what the documentation leaves open.
        stale_max: how many entries of merged windows may stay in memory; no answer depends on it.

    Raises:
        SpecError: the parts do not go together, or the pipeline is none.
    """

    windows: Windows
    pipeline: str
    columns: LogColumns
    source: Source = field(default_factory=Source)
    letters: DeadLetterWriter = field(default_factory=DeadLetterWriter)
    profile: AtlasProfile = STRICT
    stale_max: int = STALE_MAX

    def __post_init__(self) -> None:
        """Compile everything once, so that what is wrong is refused here."""
        names = [name for name, _ in self.columns.columns]
        for name, use in ((self.source.ts_field_name, "the event time (source: tsFieldName)"), (_META, "the metadata")):
            if name in names:
                raise SpecError(
                    f"the log has a column {name}, and documents have a field of this name with {use}; "
                    "choose another tsFieldName, or rename the column"
                )
        if not 0 <= self.windows.allowed_lateness_ms < SAFE_TIME_MS:
            raise SpecError(f"allowedLateness must be from 0 to 2**62 ms, got {self.windows.allowed_lateness_ms}")
        self._windowing()

    @classmethod
    def parse(
        cls,
        stage: Mapping[str, Json],
        *,
        columns: Mapping[str, str],
        source: Mapping[str, Json] | None = None,
        profile: AtlasProfile = STRICT,
        letters: DeadLetterWriter | None = None,
    ) -> "AtlasSpec":
        """Read a window stage as it is written in Atlas.

        Args:
            stage: `{"$tumblingWindow": {...}}`, `$hoppingWindow` or `$sessionWindow`.
            columns: the log's columns and their Spark types, in the order of the document's fields.
            source: the options of `$source` that matter here: tsFieldName, partitionIdleTimeout.
            profile: the answers to what the documentation leaves open.
            letters: who writes dead letters.

        Raises:
            SpecError: names the path inside the stage, what was found and what is allowed.
        """
        windows, pipeline, place = read_windows(stage)
        compile_pipeline(pipeline, place)
        return cls(
            windows=windows,
            pipeline=json_text(pipeline, place),
            columns=LogColumns(tuple(columns.items())),
            source=Source.read(source or {}),
            letters=letters or DeadLetterWriter(),
            profile=profile,
        )

    @property
    def bound_ms(self) -> int | None:
        """How far the watermark stays behind the greatest event time; None where time-outs need a sequential pass."""
        waits = self.windows.idle_timeout_ms is not None or self.source.partition_idle_timeout_ms is not None
        return None if waits else 1

    @property
    def needs_clock(self) -> bool:
        """Whether something waits for the replay's clock or reads it, so that the log needs an arrival time."""
        is_waited_for = self.bound_ms is None or not self.windows.is_event_time
        return is_waited_for or uses_now(self.windows, json.loads(self.pipeline))

    @property
    def group_column(self) -> str | None:
        """The column that may serve as the log's key: windows per key then give the same documents, in parallel.

        That is the `_id` of a $group that comes first, in a window without partitions of its own, where no later stage
        looks at more than one document. The panes of a window are then numbered per key.
        """
        stages = [next(iter(stage.items())) for stage in json.loads(self.pipeline)]
        if isinstance(self.windows, Sessions) or not stages or stages[0][0] != "$group":
            return None
        identity, types = stages[0][1]["_id"], dict(self.columns.columns)
        if not isinstance(identity, str) or types.get(identity.removeprefix("$")) not in _KEY_TYPES:
            return None
        if not identity.startswith("$") or any(name not in _ONE_BY_ONE for name, _ in stages[1:]):
            return None
        return identity[1:]

    def build(self, groups: KeyGroupRange | None = None) -> AtlasOperator:
        """Return a fresh operator that owns `groups`, by default all of them."""
        return AtlasOperator(self._windowing(), groups)

    def driver(self) -> AtlasDriver:
        """Return a fresh driver of the watermark."""
        return AtlasDriver(
            windows=self.windows,
            profile=self.profile,
            partition_idle_timeout_ms=self.source.partition_idle_timeout_ms,
        )

    def _windowing(self) -> Windowing:
        place = Place(self.windows.stage)
        return Windowing(
            windows=self.windows,
            stages=compile_pipeline(json.loads(self.pipeline), place.at("pipeline")),
            partition_by=self._partition_by(place.at("partitionBy")),
            document_of=self.columns.document_of(),
            ts_field_name=self.source.ts_field_name,
            letters=self.letters,
            profile=self.profile,
            stale_max=self.stale_max,
        )

    def _partition_by(self, place: Place) -> Expression | None:
        match self.windows:
            case Hopping():
                return None
            case Sessions(partition_by=text):
                return compile_expression(json.loads(text), place)
