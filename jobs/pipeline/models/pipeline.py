"""The grammar of a pipeline file (DESIGN.md, section 4) as frozen models: what the file says, nothing derived.

The names of fields are the keys of the file; durations are milliseconds in Python (`size_ms`) and texts in the file
(`size: 1h`). `jobs.pipeline.files` reads files into these models. Its errors
name the key. Each part of a file has a module in this package. docs/PIPELINES.md describes the grammar for people.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, PrivateAttr, StringConstraints, field_validator, model_validator

from jobs.pipeline.models.column_names import check_apart, check_output_names
from jobs.pipeline.models.cron import check_cron
from jobs.pipeline.models.grammar import (
    FunctionGrammar,
    GrammarModel,
    Unit,
    refuse_control_characters,
    refuse_controls_but_lines,
)
from jobs.pipeline.models.log import LogGrammar, ReadyGrammar, SliceGrammar, TimeColumn
from jobs.pipeline.models.process import AGGREGATE_KINDS, AggregateGrammar, ProcessGrammar
from jobs.pipeline.models.watermarks import WatermarkGrammar
from jobs.pipeline.models.windows import Session, Sliding, Tumbling, WindowsGrammar

__all__ = [
    "AGGREGATE_KINDS",
    "AggregateGrammar",
    "LogGrammar",
    "Pipeline",
    "ProcessGrammar",
    "QualityGrammar",
    "ReadyGrammar",
    "Session",
    "SliceGrammar",
    "Sliding",
    "TimeColumn",
    "Tumbling",
    "Unit",
    "WatermarkGrammar",
    "WindowsGrammar",
]

MAX_PARALLELISM = 32_768  # Flink's bound on key groups


class QualityGrammar(GrammarModel):
    """The suite that judges every run, and the severity from which a failed check stops publication."""

    suite: str
    fail_on: Literal["critical", "warning", "info"] = "critical"

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
    """One pipeline file. `source` is the file it was read from, for messages; it is no part of the pipeline."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,62}$")] = Field(alias="pipeline")
    log: LogGrammar
    watermark: WatermarkGrammar | None = None
    windows: WindowsGrammar | None = None
    aggregates: Mapping[str, AggregateGrammar] = {}
    process: ProcessGrammar | None = None
    quality: QualityGrammar | None = None
    schedule: Annotated[str, AfterValidator(check_cron)] | None = None
    semantics: Literal["strict", "flink", "storm", "mongodb", "beam"] = "strict"
    owner: Annotated[str, StringConstraints(max_length=200), AfterValidator(refuse_control_characters)] | None = None
    description: (
        Annotated[str, StringConstraints(max_length=5_000), AfterValidator(refuse_controls_but_lines)] | None
    ) = None
    max_parallelism: Annotated[int, Field(ge=1, le=MAX_PARALLELISM)] = 128

    _source: str = PrivateAttr(default="")
    _functions_dir: Path | None = PrivateAttr(default=None)

    @field_validator("aggregates")
    @classmethod
    def _check_names(cls, value: Mapping[str, AggregateGrammar]) -> Mapping[str, AggregateGrammar]:
        return check_output_names(value, "aggregate") if value else value

    @model_validator(mode="after")
    def _computes_something(self) -> Self:
        front_end = self.front_end
        if front_end == "atlas":
            if self.aggregates or self.process is not None:
                raise ValueError("windows.atlas computes by its own pipeline; leave out aggregates and process")
        elif not self.aggregates and self.process is None:
            raise ValueError("needs aggregates, such as {records: {count: {}}}, or process, a function of your own")
        elif self.windows is None and (self.process is None or self.aggregates):
            raise ValueError("aggregates need windows, such as windows: {tumbling: {size: 1h}}")
        if self.windows is None and self.process is not None and self.process.window_state:
            raise ValueError("process.window_state needs windows; without them keep what you remember in process.state")
        check_apart(self.log.key_columns, self.aggregates, "aggregate")
        check_apart(self.log.key_columns, self.output_columns, "output column")
        for columns in self.process.side_outputs.values() if self.process is not None else ():
            check_apart(self.log.key_columns, columns, "side output column")
        return self

    @model_validator(mode="after")
    def _watermark_where_needed(self) -> Self:
        if self.front_end is not None and self.watermark is not None:
            raise ValueError(f"windows.{self.front_end} makes its own watermark; leave out watermark")
        waits = self.windows is not None and self.windows.waits_for_watermark
        if waits and self.watermark is None:
            raise ValueError(
                "watermark is missing; these windows end when event time has passed them, so write how it moves on, "
                "such as watermark: {kind: bounded, out_of_orderness: 1h}"
            )
        if self.watermark is not None and self.watermark.emit.on == "commit" and self.log.order != "commits":
            raise ValueError(f"watermark.emit: commit needs log.order: commits, found {list(self.log.order)}")
        return self

    @model_validator(mode="after")
    def _clock_where_needed(self) -> Self:
        if self.needs_clock and self.log.arrival_time is None:
            raise ValueError(
                "log.arrival_time is missing: something here waits for the clock or reads it ($$NOW), and the clock of "
                "a replay is the time at which records arrived; name the column that holds it"
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

    @property
    def front_end(self) -> str | None:
        """The other engine whose windows these are: storm, atlas or None."""
        return None if self.windows is None else self.windows.front_end

    @property
    def needs_clock(self) -> bool:
        """Whether anything waits for the replay's clock, as far as the file shows; users' functions may, too."""
        parts = (self.watermark, self.windows)
        return any(part is not None and part.needs_clock for part in parts)

    @property
    def output_columns(self) -> tuple[str, ...]:
        """The columns of a pane's values."""
        if self.front_end == "atlas":
            return ("document",)
        return tuple(self.aggregates if self.process is None else self.process.output)

    def functions(self) -> tuple[FunctionGrammar, ...]:
        """Return the users' functions that the file names."""
        found = list(self.windows.functions()) if self.windows is not None else []
        if self.watermark is not None and self.watermark.function is not None:
            found.append(self.watermark.function)
        if self.process is not None:
            found.append(self.process.function)
        return tuple(found)

    @property
    def source(self) -> str:
        """Where the pipeline was read from, such as `pipelines/flights.yaml`."""
        return self._source or f"pipeline {self.name}"

    @property
    def functions_dir(self) -> Path | None:
        """Where the modules of users' functions are looked for first: beside the pipeline file."""
        return self._functions_dir

    def read_from(self, source: str, functions_dir: Path | None = None) -> "Pipeline":
        """Return the same pipeline, with `source` named in its errors and functions looked for in `functions_dir`."""
        copy = self.model_copy()
        copy._source, copy._functions_dir = source, functions_dir  # noqa: SLF001  (a copy of ours)
        return copy
