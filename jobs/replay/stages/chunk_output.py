"""The rows of a chunk that tasks have left in shuffle files and files: they are encoded in one job, and committed."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobs.lake.file_commits import commit_files
from jobs.lake.store import add_fields
from jobs.replay.chunk.input_sums import InputSums
from jobs.replay.chunk.slice_runs import SliceRun
from jobs.replay.chunk.tallies import Sums
from jobs.replay.chunk.time_steps import ChunkTime
from jobs.replay.groups import groups_of
from jobs.replay.intake.layout import Layout
from jobs.replay.intake.log_blocks import LogColumns
from jobs.replay.pinned import Pinned
from jobs.replay.stage_times import stage
from jobs.replay.stages.encode import EncodePlan, EncodeTask, SliceRows, encode
from jobs.replay.stages.parquet_writer import KnownRun
from jobs.replay.stages.scan import Scanned
from jobs.replay.stages.shuffle_files import ShuffleBatch
from jobs.replay.stages.side_records import SideRecords
from jobs.replay.stages.windows import BucketRows
from jobs.replay.tasks import Tasks
from jobs.storage import remove_directory
from windowlib.columnar.plan import KEPT_TAG
from windowlib.errors import InvariantBroken
from windowlib.records import tables
from windowlib.records.row_ids import IdSum

if TYPE_CHECKING:
    from jobs.replay.intake.blocks import Block


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkOutput:
    """The rows of the tasks in shuffle files, below the directory of the attempt."""

    tasks: Tasks
    pinned: Pinned
    layout: Layout
    columns: LogColumns
    buckets: Sequence[BucketRows]
    scanned: Sequence[Scanned]
    known: KnownRun
    directory: str

    def write(self, runs: Sequence[SliceRun]) -> None:
        """Encode all tables in one job, and commit them: one commit per table for all slices. The tables exist."""
        if runs[0].columns() != self.known.columns:
            raise InvariantBroken(
                f"files were written for the run {dict(self.known.columns)}, and the run of their slice is "
                f"{runs[0].columns()}; please report this"
            )
        plan = EncodePlan(
            rows_per_file=self.pinned.sizes.rows_per_file,
            records=SideRecords(
                log=self.columns,
                names=self.pinned.tables.record_names,
                record_id=self.pinned.order.pipeline.log.record_id,
                derivation=self.pinned.tables.derivation,
            ),
        )
        with stage("encode"):
            done = self.tasks.run(lambda task: encode(task, plan), self._tasks(runs))
        encoded = [file for listed in [*(bucket.files for bucket in self.buckets), *done] for file in listed]
        for table in self.pinned.tables.stored:
            files = [file.file for file in encoded if file.table == table.name]
            if files:
                add_fields(self.pinned.uri(table.name), table)
                commit_files(self.pinned.uri(table.name), files)

    def close(self) -> None:
        """Delete the shuffle files. Called when the chunk is written, or has failed."""
        remove_directory(self.directory)

    def _tasks(self, runs: Sequence[SliceRun]) -> list[EncodeTask]:
        blocks: dict[int, list[Block]] = {}
        for block in self.layout.blocks:
            blocks.setdefault(block.slice_no, []).append(block)
        made: list[EncodeTask] = []
        for table in self.pinned.tables.stored:
            root, by_slice = self.pinned.uri(table.name), self._shuffled(table.name, runs)
            holds_records = table.name in tables.RECORD_TABLES
            slices = [
                SliceRows(run=run, shuffled=own, blocks=tuple(blocks.get(run.slice_no, ())) if holds_records else ())
                for run in runs
                if run.slice_no in by_slice
                for own in self._files(by_slice[run.slice_no], is_whole=holds_records)
            ]
            groups = groups_of(slices, SliceRows.rows, self.pinned.sizes.rows_per_encoding)
            made += [EncodeTask(table=table, root=root, slices=group) for group in groups]
        return made

    def _files(self, shuffled: Sequence[ShuffleBatch], *, is_whole: bool) -> Iterable[tuple[ShuffleBatch, ...]]:
        """Cut the shuffle files of a slice into files. Tasks write the files of a large slice in parallel."""
        if is_whole:
            return [tuple(shuffled)]
        return groups_of(shuffled, lambda batch: batch.rows, self.pinned.sizes.rows_per_file)

    def _shuffled(self, table: str, runs: Sequence[SliceRun]) -> dict[int, list[ShuffleBatch]]:
        """Return the shuffle files of a table by slice: of a checkpoint, those of the form in which it is stored."""
        is_whole = {run.slice_no: run.stores_whole_state for run in runs}
        match table:
            case tables.INVALID_RECORDS:
                shuffled = [batch for part in self.scanned for batch in part.invalid_records]
            case tables.DUPLICATE_RECORDS:
                shuffled = [batch for part in self.scanned for batch in part.duplicate_records]
            case tables.STATE_REMOVALS:
                shuffled = [batch for batch in self._of_tag(table) if not is_whole[batch.slice_no]]
            case _:
                kept = [batch for batch in self._of_tag(KEPT_TAG + table) if is_whole[batch.slice_no]]
                shuffled = [*self._of_tag(table), *kept]
        by_slice: dict[int, list[ShuffleBatch]] = {}
        for batch in shuffled:
            by_slice.setdefault(batch.slice_no, []).append(batch)
        return by_slice

    def _of_tag(self, tag: str) -> Iterator[ShuffleBatch]:
        for part in self.buckets:
            yield from part.shuffled.get(tag, ())


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkRun:
    """A chunk whose windows ran.

    `slices` has the input of each slice, `counted` what the tasks counted, `scanned` the ids of the records that the
    audit's own scan of the log found, by slice number. `file_digests` has what the ledger stores of the bytes of the
    log's files, by slice (`LogCoordinates`).
    """

    file_digests: Mapping[str, str]
    slices: tuple[InputSums, ...]
    time: ChunkTime
    counted: Sums
    scanned: Mapping[int, IdSum]
    rows: ChunkOutput
