"""The grammar of a pipeline file as frozen models, without derived values.

The fields have the names of the file's keys. Durations are milliseconds in Python (`size_ms`) and texts in the file
(`size: 1h`). `jobs.pipeline.files` reads files into these models, and its errors name the key. Each part of a file has
a module in this package. docs/reference/pipelines.md describes the grammar for users.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    PrivateAttr,
    Strict,
    StringConstraints,
    ValidationInfo,
    field_validator,
    model_validator,
)

from jobs.durations import format_duration
from jobs.pipeline.models.alerts import AlertsGrammar
from jobs.pipeline.models.column_names import check_apart, check_output_names
from jobs.pipeline.models.grammar import (
    FunctionGrammar,
    GrammarModel,
    is_stored,
    refuse_control_characters,
    refuse_controls_but_lines,
)
from jobs.pipeline.models.kafka import with_kafka_sources
from jobs.pipeline.models.log import PIPELINE_NAME, LogGrammar
from jobs.pipeline.models.process import AggregateGrammar, ProcessGrammar
from jobs.pipeline.models.publish import PublishGrammar
from jobs.pipeline.models.restate import RepairGrammar, RestateGrammar
from jobs.pipeline.models.retention import RetentionGrammar
from jobs.pipeline.models.schedule import ScheduleGrammar
from jobs.pipeline.models.suggestions import did_you_mean
from jobs.pipeline.models.watermarks import WatermarkGrammar
from jobs.pipeline.models.windows import WindowsGrammar
from windowlib.records.tables import RECORD_TABLES, WINDOW_OUTPUTS, side_outputs_name

MAX_PARALLELISM = 32_768  # Flink's bound on key groups


Tag = Annotated[str, StringConstraints(min_length=1, max_length=100), AfterValidator(refuse_control_characters)]


class QualityGrammar(GrammarModel):
    """The suite that checks every run, and the lowest severity of a failed check that stops publication.

    `confirm` are the results of compiled checks that Great Expectations confirms.
    """

    suite: str
    fail_on: Literal["critical", "warning", "info"] = "critical"
    confirm: Literal["failures", "all", "none"] = "failures"

    @field_validator("suite")
    @classmethod
    def _inside_expectations(cls, value: str) -> str:
        parts = value.split("/")
        if parts[0] != "expectations" or not value.endswith(".json") or {"..", ".", ""} & set(parts) or "\\" in value:
            raise ValueError(
                f"must be a .json file below expectations/, such as expectations/flights.json; found {value!r}"
            )
        return refuse_control_characters(value)


class Pipeline(GrammarModel):
    """One pipeline file. `source`, the path of the file, is used in messages and is not a part of the pipeline."""

    name: Annotated[str, StringConstraints(pattern=PIPELINE_NAME)] = Field(alias="pipeline")
    log: LogGrammar
    watermark: WatermarkGrammar | None = None
    windows: WindowsGrammar | None = None
    aggregates: Mapping[str, AggregateGrammar] = {}
    process: ProcessGrammar | None = None
    quality: QualityGrammar | None = None
    publish: PublishGrammar | None = None
    restate: RestateGrammar | None = None
    repair: RepairGrammar | None = None
    retention: RetentionGrammar | None = None
    schedule: ScheduleGrammar | None = None
    semantics: Literal["strict", "flink", "storm", "mongodb", "beam"] = "strict"
    owner: Annotated[str, StringConstraints(max_length=200), AfterValidator(refuse_control_characters)] | None = None
    description: (
        Annotated[str, StringConstraints(max_length=5_000), AfterValidator(refuse_controls_but_lines)] | None
    ) = None
    tags: Annotated[tuple[Tag, ...], Strict(strict=False), Field(max_length=20)] | None = None
    alerts: AlertsGrammar | None = None
    max_parallelism: Annotated[int, Field(ge=1, le=MAX_PARALLELISM)] = 128

    _source: str = PrivateAttr(default="")
    _functions_dir: Path | None = PrivateAttr(default=None)

    @model_validator(mode="before")
    @classmethod
    def _fill_in_kafka(cls, value: object) -> object:
        return with_kafka_sources(value)

    @field_validator("aggregates")
    @classmethod
    def _check_names(cls, value: Mapping[str, AggregateGrammar]) -> Mapping[str, AggregateGrammar]:
        return check_output_names(value, "aggregate") if value else value

    @model_validator(mode="after")
    def _computes_something(self) -> Self:
        front_end = self.front_end
        if front_end == "atlas":
            if self.aggregates or self.process is not None:
                raise ValueError("windows.atlas has a pipeline of its own; leave out aggregates and process")
        elif not self.aggregates and self.process is None:
            raise ValueError("needs aggregates, such as {records: {count: {}}}, or process, a function of your own")
        elif self.windows is None and (self.process is None or self.aggregates):
            raise ValueError("aggregates need windows, such as windows: {tumbling: {size: 1h}}")
        if self.windows is None and self.process is not None and self.process.window_state:
            raise ValueError("process.window_state needs windows; without windows, declare the state in process.state")
        check_apart(self.log.key_columns, self.aggregates, "aggregate")
        check_apart(self.log.key_columns, self.output_columns, "output column")
        for columns in self.process.side_outputs.values() if self.process is not None else ():
            check_apart(self.log.key_columns, columns, "side output column")
        return self

    @model_validator(mode="after")
    def _function_of_records(self, info: ValidationInfo) -> Self:
        columns = None if self.process is None else self.process.function.columns
        if columns is not None and self.aggregates and not is_stored(info):
            raise ValueError(
                f"process.function.columns: found {list(columns)}; with aggregates, the function gets their values and "
                "no record; leave columns out, or aggregates"
            )
        return self

    @model_validator(mode="after")
    def _reads_another_pipeline(self) -> Self:
        if self.log.pipeline == self.name:
            raise ValueError(f"log.pipeline: {self.name} is this pipeline; a pipeline cannot read its own results")
        return self

    @model_validator(mode="after")
    def _watermark_where_needed(self) -> Self:
        if self.front_end is not None and self.watermark is not None:
            raise ValueError(f"windows.{self.front_end} computes its own watermark; leave out watermark")
        waits = self.windows is not None and self.windows.waits_for_watermark
        if waits and self.watermark is None:
            raise ValueError(
                "watermark is missing; these windows end when the watermark passes them; write how the watermark is "
                "computed, such as watermark: {kind: bounded, out_of_orderness: 1h}"
            )
        if self.watermark is not None and self.watermark.emit.on == "commit" and self.log.order_columns:
            raise ValueError(
                "watermark.emit: commit needs log.order: commits, or log.order: appended, found "
                f"{list(self.log.order_columns)}"
            )
        return self

    @model_validator(mode="after")
    def _clock_where_needed(self) -> Self:
        users = self._clock_users()
        if users and self.log.arrival_time is None:
            verb = "waits for the clock or reads it" if len(users) == 1 else "wait for the clock or read it"
            raise ValueError(
                f"log.arrival_time is missing; {' and '.join(users)} {verb}, and the clock of a replay is the arrival "
                "time of the records; name the column of the arrival time"
            )
        return self

    @model_validator(mode="after")
    def _semantics_fit_windows(self) -> Self:
        allowed = {None: ("strict", "flink", "beam"), "storm": ("strict", "storm"), "atlas": ("strict", "mongodb")}
        if self.semantics not in allowed[self.front_end]:
            kind = "these windows" if self.front_end is None else f"windows.{self.front_end}"
            raise ValueError(
                f"semantics: found {self.semantics!r}, allowed for {kind}: {', '.join(allowed[self.front_end])}"
            )
        return self

    @model_validator(mode="after")
    def _settled_fits_windows(self, info: ValidationInfo) -> Self:
        settled = self.publish.settled if self.publish is not None else None
        if settled is None:
            return self
        if self.windows is None:
            raise ValueError("publish.settled needs windows: without windows, no output has an end")
        if self.windows.is_unbounded and not is_stored(info):
            raise ValueError("publish.settled needs windows that end; count and global windows are never settled")
        known = (*self.output_columns, "record_count")
        for name in settled.change_at_most.columns:
            if name not in known:
                raise ValueError(
                    f"publish.settled.change_at_most.columns: found {name!r}, allowed: {', '.join(known)}"
                    f"{did_you_mean(name, known)}"
                )
        return self

    @model_validator(mode="after")
    def _repair_fits_windows(self, info: ValidationInfo) -> Self:
        if self.repair is None or self.repair.mode == "off" or is_stored(info):
            return self
        windows = self.windows
        if windows is None or windows.is_processing_time or not self.may_have_restart_point:
            raise ValueError(
                "repair needs windows that end by event time and allow late records: tumbling, sliding or session, "
                "without time: processing, stagger: natural, a gap for each record and state of a function; leave "
                "repair out"
            )
        return self

    @model_validator(mode="after")
    def _has_the_current_tables(self) -> Self:
        side_outputs = () if self.process is None else tuple(self.process.side_outputs)
        known = (WINDOW_OUTPUTS, *RECORD_TABLES, *map(side_outputs_name, side_outputs))
        names = () if self.publish is None else self.publish.current_tables
        for name in names:
            if name not in known:
                raise ValueError(
                    f"publish.current_tables: found {name!r}, allowed: {', '.join(known)}{did_you_mean(name, known)}"
                )
        if len(set(names)) < len(names):
            raise ValueError(f"publish.current_tables: found {list(names)}; name each table once")
        return self

    @model_validator(mode="after")
    def _retention_fits_corrections(self) -> Self:
        kept_ms = None if self.retention is None else self.retention.checkpoints_ms
        corrections = {"restate": self.restate or RestateGrammar(), "repair": self.repair}
        for name, part in corrections.items():
            if kept_ms is not None and part is not None and part.mode != "off" and part.at_most_age_ms > kept_ms:
                raise ValueError(
                    f"retention.checkpoints: found {format_duration(kept_ms)}, allowed: at least {name}.at_most_age, "
                    f"which is {format_duration(part.at_most_age_ms)}, because a slice is replayed from the state "
                    "before it"
                )
        return self

    @property
    def front_end(self) -> str | None:
        """The engine whose syntax the windows use: storm, atlas, or None for Hindcast's own."""
        return None if self.windows is None else self.windows.front_end

    @property
    def may_have_restart_point(self) -> bool:
        """Whether a time bounds how long a record matters, as far as the file shows (windowlib.windows.reach)."""
        has_state = self.process is not None and bool(self.process.state)
        return self.windows is not None and self.windows.ends_by_time and not has_state

    @property
    def needs_clock(self) -> bool:
        """Whether a part of the file needs the replay's clock. Users' functions may need it without this flag."""
        return bool(self._clock_users())

    def _clock_users(self) -> list[str]:
        users = ["watermark"] if self.watermark is not None and self.watermark.needs_clock else []
        return users + (self.windows.clock_users if self.windows is not None else [])

    @property
    def uses_clock(self) -> bool:
        """Whether a replay reads arrival times and moves a clock: a part needs it, or a user's function may use it."""
        return self.needs_clock or (bool(self.functions()) and self.log.arrival_time is not None)

    @property
    def output_columns(self) -> tuple[str, ...]:
        """The columns of a pane's values."""
        if self.front_end == "atlas":
            return ("document",)
        return tuple(self.aggregates if self.process is None else self.process.output)

    def functions(self) -> tuple[FunctionGrammar, ...]:
        """Return the users' functions that the file names."""
        functions = list(self.windows.functions()) if self.windows is not None else []
        if self.watermark is not None and self.watermark.function is not None:
            functions.append(self.watermark.function)
        if self.process is not None:
            functions.append(self.process.function)
        return tuple(functions)

    @property
    def source(self) -> str:
        """The place from which the pipeline was read, such as `pipelines/flights.yaml`."""
        return self._source or f"pipeline {self.name}"

    @property
    def functions_dir(self) -> Path | None:
        """The directory of the pipeline file, in which the modules of users' functions are searched first."""
        return self._functions_dir

    def read_from(self, source: str, functions_dir: Path | None = None) -> "Pipeline":
        """Return a copy of the pipeline with this `source` and `functions_dir`."""
        copy = self.model_copy()
        copy._source, copy._functions_dir = source, functions_dir  # noqa: SLF001  (the copy has the same class)
        return copy
