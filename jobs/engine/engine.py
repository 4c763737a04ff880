"""What a pipeline file comes down to, over a log with known columns: the seam between grammar and replay."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from windowlib.keyed.operator_protocol import OperatorSpec
from windowlib.spark.record_values import ValueLayout
from windowlib.watermarks.timeline import TimeDriver

__all__ = ["Engine", "TimeSpec", "ValueLayout"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSpec:
    """Where the watermark comes from.

    `bound_ms` is set for one source that is bounded and emits with every record: then watermark = greatest event time
    minus `bound_ms` (Flink's 1 included), and no sequential pass is needed unless the clock matters. `driver` builds
    the driver of every other case (and of this one, for the tests that hold them equal). `columns` are what it reads
    from each record, `source` the column that names a record's source, `needs_commits` whether it reads the commit.
    `needs_every_record` is False where only a rise of the clock, or of a source's greatest event time, and a source's
    first record at each instant can matter: then the pass leaves out all others.
    """

    driver: Callable[[], TimeDriver]
    bound_ms: int | None = None
    columns: tuple[str, ...] = ()
    source: str | None = None
    needs_commits: bool = False
    needs_every_record: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """Everything that a replay needs to know of a pipeline, besides where its log is.

    `outputs` maps the columns of a pane's values to Spark types, `accumulators` each aggregate to the columns of its
    state (empty where windows keep records whole), `side_outputs` each tag to its columns. `needs_clock`: something
    waits for the replay's clock, so the log needs an arrival time. `keeps_last`: retractions may follow, so the state
    keeps what was last emitted. `keeps_user_state`: a user's function declares state of its own.
    """

    operator: OperatorSpec
    time: TimeSpec
    layout: ValueLayout
    outputs: Mapping[str, str]
    accumulators: Mapping[str, Mapping[str, str]]
    side_outputs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    needs_clock: bool = False
    keeps_last: bool = False
    keeps_user_state: bool = False
