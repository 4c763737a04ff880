"""`AtlasSpec`, a window stage of MongoDB Atlas: checks itself and builds the operator and the driver."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from windowlib.atlas.atlas_operator import AtlasOperator, Windowing
from windowlib.atlas.clock_use import uses_now
from windowlib.atlas.dead_letters import DEAD_LETTERS, DeadLetterWriter
from windowlib.atlas.documents.json_documents import json_text
from windowlib.atlas.documents.log_columns import document_of
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
from windowlib.keyed.state_rules import StateRules
from windowlib.keyed.timers import KeyGroupRange

OUTPUT_COLUMNS: Final[Mapping[str, str]] = {"document": "string"}
"""The columns of a pane's values: one document as JSON text."""
SIDE_OUTPUT_COLUMNS: Final[Mapping[str, Mapping[str, str]]] = {DEAD_LETTERS: {"document": "string"}}
"""The columns of each side output."""
_META: Final = "_stream_meta"
_ONE_BY_ONE: Final = frozenset(STAGES) - {"$group", "$sort", "$limit", "$count"}
"""The stages that process one document at a time."""
_KEY_TYPES: Final = ("string", "boolean", "tinyint", "smallint", "int", "bigint", "date")
"""The types whose values are equal as keys if and only if they are equal as values of documents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AtlasSpec:
    """The windows and their inner pipeline. A spec is comparable and hashable, and can be pickled for a worker.

    Args:
        windows: the window stage.
        pipeline: the inner pipeline as JSON text.
        columns: the names and Spark types of the columns that a record's value has, in the order of the fields.
        source: the source's options.
        letters: the writer of dead letters.
        profile: the semantics of the points that the documentation of Atlas leaves open.
        stale_max: the number of entries of merged windows that may stay in memory. No result depends on it.

    Raises:
        SpecError: the parts contradict each other, or the pipeline is not valid.
    """

    windows: Windows
    pipeline: str
    columns: tuple[tuple[str, str], ...]
    source: Source = field(default_factory=Source)
    letters: DeadLetterWriter = field(default_factory=DeadLetterWriter)
    profile: AtlasProfile = STRICT
    stale_max: int = STALE_MAX

    def __post_init__(self) -> None:
        names = [name for name, _ in self.columns]
        for name, use in ((self.source.ts_field_name, "the event time (source: tsFieldName)"), (_META, "the metadata")):
            if name in names:
                raise SpecError(
                    f"the log has a column {name}, but documents have a field {name} for {use}; choose another "
                    "tsFieldName, or rename the column"
                )
        if not 0 <= self.windows.allowed_lateness_ms < SAFE_TIME_MS:
            raise SpecError(f"allowedLateness must be from 0 to 2**62 ms, got {self.windows.allowed_lateness_ms}")
        self._windowing()  # compiles the pipeline and the partition, so that their errors are raised here

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
        """Return the spec of a window stage in Atlas's notation.

        The stage is `{"$tumblingWindow": {...}}`, `$hoppingWindow` or `$sessionWindow`. `columns` are the log's columns
        and their Spark types, in the order of the document's fields. `source` has the supported options of `$source`:
        tsFieldName, partitionIdleTimeout.
        Raises SpecError: a part is not valid. The message has its path in the stage, what was found and what is
        allowed.
        """
        windows, pipeline, place = read_windows(stage)
        compile_pipeline(pipeline, place)
        return cls(
            windows=windows,
            pipeline=json_text(pipeline, place),
            columns=tuple(columns.items()),
            source=Source.read(source or {}),
            letters=letters or DeadLetterWriter(),
            profile=profile,
        )

    @property
    def bound_ms(self) -> int | None:
        """The distance of the watermark behind the greatest event time; None if a time-out needs a sequential pass."""
        waits = self.windows.idle_timeout_ms is not None or self.source.partition_idle_timeout_ms is not None
        return None if waits else 1

    @property
    def needs_clock(self) -> bool:
        """Whether the windows wait for the replay's clock or read it, so that the log needs an arrival time."""
        is_waited_for = self.bound_ms is None or not self.windows.is_event_time
        return is_waited_for or uses_now(self.windows, json.loads(self.pipeline))

    @property
    def group_column(self) -> str | None:
        """The column that can be the log's key, or None. Windows per key then give the same documents, in parallel.

        It is the `_id` of the first stage if that is a $group, the windows are not sessions, and each later stage
        processes one document at a time. The panes of a window are then numbered per key. For users: Hindcast itself
        does not read it.
        """
        stages = [next(iter(stage.items())) for stage in json.loads(self.pipeline)]
        if isinstance(self.windows, Sessions) or not stages or stages[0][0] != "$group":
            return None
        identity, types = stages[0][1]["_id"], dict(self.columns)
        if not isinstance(identity, str) or types.get(identity.removeprefix("$")) not in _KEY_TYPES:
            return None
        if not identity.startswith("$") or any(name not in _ONE_BY_ONE for name, _ in stages[1:]):
            return None
        return identity[1:]

    def build(self, groups: KeyGroupRange | None = None) -> AtlasOperator:
        return AtlasOperator(self._windowing(), groups)

    def state_rules(self) -> StateRules:
        windows, grid = self.windows, None
        if isinstance(windows, Hopping):
            grid = (windows.size_ms, windows.hop_ms, windows.offset_ms)
        return StateRules(
            has_timers=False,
            has_bounds=True,
            grid=grid,
            least_ms=1 if isinstance(windows, Hopping) else windows.gap_ms,
            is_event_time=windows.is_event_time,
            # On the clock, a window that ends at an instant closes after the records of that instant.
            gone_after_ms=windows.allowed_lateness_ms - 1 if windows.is_event_time else 1,
            keeps_records=True,
        )

    def driver(self) -> AtlasDriver:
        return AtlasDriver(
            windows=self.windows, profile=self.profile, partition_idle_timeout_ms=self.source.partition_idle_timeout_ms
        )

    def _windowing(self) -> Windowing:
        place = Place(self.windows.stage)
        return Windowing(
            windows=self.windows,
            stages=compile_pipeline(json.loads(self.pipeline), place.at("pipeline")),
            partition_by=self._partition_by(place.at("partitionBy")),
            document_of=document_of(self.columns),
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
