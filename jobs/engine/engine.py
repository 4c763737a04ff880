"""The Engine: a pipeline file compiled for a log with known columns. The replay depends on it and not on the file."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from windowlib.columnar.record_values import ValueLayout
from windowlib.keyed.operator_protocol import RestorableSpec
from windowlib.watermarks.timeline import TimeDriver

__all__ = ["Engine", "TimeSpec", "ValueLayout"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSpec:
    """How a replay computes the watermark.

    - `driver` builds the driver of time. If `bound_ms` is set, only the tests that compare both ways use it.
    - `bound_ms` is set for a single bounded source that emits with every record. Then the watermark is the greatest
      event time minus `bound_ms` (which includes Flink's 1 ms), and only a replay that needs the clock makes a
      sequential pass.
    - `columns` are the columns that the driver reads from each record.
    - `source` is the column that names a record's source.
    - `needs_commits`: the driver reads the commit of each record.
    - `needs_every_record` is False if only these records can matter: one that raises the clock or its source's
      greatest event time, and a source's first record at each instant. Then the pass skips all others.
    """

    driver: Callable[[], TimeDriver]
    bound_ms: int | None = None
    columns: tuple[str, ...] = ()
    source: str | None = None
    needs_commits: bool = False
    needs_every_record: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """Everything that a replay needs of a pipeline, except the place of its log.

    - `outputs` maps the columns of a pane's values to Spark types.
    - `accumulators` maps each aggregate to the columns of its state. It is empty if windows store whole records.
    - `side_outputs` maps each tag to its columns.
    - `needs_clock`: something waits for the replay's clock, so the log needs an arrival time.
    - `keeps_last`: retractions are possible, so the state stores the last emitted values.
    - `keeps_user_state`: a user's function declares state.
    """

    operator: RestorableSpec
    time: TimeSpec
    layout: ValueLayout
    outputs: Mapping[str, str]
    accumulators: Mapping[str, Mapping[str, str]]
    side_outputs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    needs_clock: bool = False
    keeps_last: bool = False
    keeps_user_state: bool = False
