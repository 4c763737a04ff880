"""The plan of a chunk: what every task gets besides rows."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from windowlib.columnar.record_values import ValueLayout
from windowlib.columnar.watermark_steps import Beginning, SliceRange, Steps
from windowlib.keyed.operator_protocol import RestorableSpec
from windowlib.records.tables import Table

KEPT_TAG: Final = "kept:"
"""With the name of a checkpoint table, the tag of rows that did not change. Only a full checkpoint stores them."""
TallyKey = tuple[int, str, str]
"""(slice number, equation, term)."""
RECORDS_PER_BLOCK: Final = 1 << 18
"""Blocks of this size fit the cache of a core mostly, and the cost per block is small."""
FULL_STATE_ROWS: Final = 20_000
"""Checkpoints with at most this many rows are full: their changes would save nothing."""
CHANGES_MAX: Final = 0.5
"""A full checkpoint follows when more than this share of the state has changed since the last one."""
ExecutorChoice = Literal["auto", "operator", "kernel"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRules:
    """When a bucket emits its whole state after a slice, and not only the changes. It changes no row of the state.

    It does so after the slices in `full_slices`, if the state of all buckets has about `full_rows` rows at most, and if
    more than the share `changes_max` of it has changed since it was emitted whole. Before the chunk, `changes_before`
    rows had changed in all buckets. With `changes_only` it never does: the buckets do not have the whole state.
    """

    full_rows: int = FULL_STATE_ROWS
    full_slices: frozenset[int] = frozenset()
    changes_max: float = CHANGES_MAX
    changes_before: int = 0
    changes_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketPlan:
    """The input of every task of a chunk besides rows. Spark sends it to the workers once per task.

    `keys` and `inputs` map a column to its Spark type; `inputs` are the columns that `layout` reads. `outputs` are the
    columns of a pane's values, and `side_outputs` those of each tag. `last` has the columns of a pane's values if panes
    may be retracted, else it is empty. `accumulators` maps an aggregate to the columns of its state.
    `max_parallelism` is the number of key groups; each key's group is stored with its state.
    `executor`: 'auto' chooses the columnar executor if it covers the spec. `records_per_block` is the number of records
    that the columnar executor processes together. Neither changes a row. `were_dates` are the columns whose timestamps
    are days in the records of the state before.
    """

    spec: RestorableSpec
    layout: ValueLayout
    keys: Mapping[str, str]
    inputs: Mapping[str, str]
    outputs: tuple[str, ...]
    side_outputs: Mapping[str, tuple[str, ...]]
    accumulators: Mapping[str, Mapping[str, str]]
    last: tuple[str, ...]
    slices: tuple[SliceRange, ...]
    steps: Steps
    beginning: Beginning
    max_parallelism: int
    tables: tuple[Table, ...]
    buckets: int
    tasks: int
    executor: ExecutorChoice = "auto"
    records_per_block: int = RECORDS_PER_BLOCK
    checkpoints: CheckpointRules = field(default_factory=CheckpointRules)
    were_dates: frozenset[str] = frozenset()

    def table(self, name: str) -> Table:
        return next(table for table in self.tables if table.name == name)
