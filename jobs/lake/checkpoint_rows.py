"""Reads the rows of a checkpoint that may be stored in parts (docs/reference/checkpoints.md), without Spark.

`read_checkpoint` returns all rows of a table. A large checkpoint is read by tasks: the driver lists the files
(`checkpoint_files`), and tasks read batches of them (`PartFiles.batches`).
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from jobs.lake.damage import reading
from jobs.lake.delta_tables import open_table
from jobs.lake.store import files_dataset, read_each_attempt, table_schema
from jobs.lake.table_files import Attempt, TableFile
from windowlib.libraries import np, pa, pads, pc
from windowlib.records import tables

if TYPE_CHECKING:
    from windowlib.columnar.watermark_steps import Bools, Int64s

Bounds: TypeAlias = Mapping[str, Any]
"""The statistics of a row group: column -> {"min": ..., "max": ...}. Columns without statistics are missing."""
_Divided: TypeAlias = "tuple[Any, tuple[tuple[str, Any, pa.DataType], ...]]"
"""A fragment of Arrow, and its columns with one value: name, value, type."""
_REPEATED: Final = ("domain", "kind", "name", "scope", "table_name", "trigger_state")
"""Columns of texts of the checkpoint's tables that have few different values."""
_ROWS_PER_BATCH: Final = 131_072
"""The largest number of removals that are read at once."""


@dataclass(frozen=True, slots=True)
class PartFiles:
    """Files of one table of a checkpoint in parts, in the order of the parts.

    `uri` is the place of the table, `schema` has its columns. `parts` maps an attempt to the number of its part.
    """

    uri: str
    schema: "pa.Schema"
    files: tuple[TableFile, ...]
    parts: Mapping[Attempt, int]

    def part(self, file: TableFile) -> int:
        return self.parts[file.attempt]

    def batches(
        self,
        columns: Sequence[str],
        *,
        rows: int,
        only: Collection[TableFile] | None = None,
        may_have: Callable[[Bounds], bool] | None = None,
        constant_rows: int | None = None,
    ) -> "Iterator[tuple[int, pa.RecordBatch]]":
        """Yield batches of at most `rows` rows, and the number of the part of each.

        Texts that repeat may come as dictionaries. Columns that the table does not have are missing. `only` are the
        files to read; None: all. Row groups for whose statistics `may_have` returns false are not read. Integers that
        are the same in all rows of a row group with at least `constant_rows` rows come from its statistics, and their
        pages are not read: the caller compares the ids of the rows with their content.
        Raises StoreError: a file cannot be read; the message names it.
        """
        chosen = self.files if only is None else only
        if not chosen:
            return
        known = [name for name in columns if name in self.schema.names]
        repeated = [name for name in known if name in _REPEATED]
        with reading(self.uri, {file.attempt for file in chosen}):
            dataset = files_dataset(self.uri, [*chosen], self.schema, repeated=repeated)
            fragments = [*dataset.get_fragments()]
            part_of = {fragment.path: self.part(file) for fragment, file in zip(fragments, chosen, strict=True)}
            if may_have is not None:
                fragments = [_with_row_groups(fragment, may_have) for fragment in fragments]
                fragments = [fragment for fragment in fragments if fragment.row_groups]
            divided: Iterable[_Divided] = ((fragment, ()) for fragment in fragments)
            if constant_rows is not None:
                divided = _by_constants(fragments, known, dataset.schema, least=constant_rows)
            for constants, own in groupby(divided, key=itemgetter(1)):
                columns_of = {name: pa.repeat(pa.scalar(value, kind), rows) for name, value, kind in constants}
                stored = [name for name in known if name not in columns_of]
                group = [fragment for fragment, _ in own]
                scanned = pads.FileSystemDataset(group, dataset.schema, dataset.format, dataset.filesystem)
                scanner = scanned.scanner(columns=stored, batch_size=rows, batch_readahead=2, fragment_readahead=1)
                for batch, fragment in scanner.scan_batches():
                    if batch.num_rows:
                        yield part_of[fragment.path], _completed(batch, known, columns_of)


def checkpoint_files(uri: str, parts: Sequence[Attempt]) -> PartFiles:
    """Return the files of a table of the attempts that stored the parts of a checkpoint; none if there is no table.

    Raises StoreError: the table cannot be read; the message names the damaged file.
    """
    with reading(uri):
        table = open_table(uri) if parts else None
        if table is None:
            return PartFiles(uri, pa.schema([]), (), {})
        number = {attempt: part for part, attempt in enumerate(parts)}
        files = sorted(table.listing().of({*parts}), key=lambda file: number[file.attempt])
        return PartFiles(uri, table_schema(table), tuple(files), number)


@dataclass(frozen=True, slots=True)
class Removals:
    """The ids of the rows that the parts of a checkpoint remove from one table.

    `ids` are sorted and distinct, and `last_parts` has the last part that removes each. `may_have` is a set of their
    upper bits. Most rows of a large state are not removed, and one look into this set tells so.
    """

    ids: "Int64s"
    last_parts: "Int64s"
    may_have: "Bools"

    @classmethod
    def of(cls, removed: "Sequence[Int64s]") -> "Removals":
        """Return the removals of the parts, in order: of each part, the ids that it removes."""
        ids = np.concatenate([np.zeros(0, np.int64), *removed])
        parts = np.repeat(np.arange(len(removed)), [len(own) for own in removed])
        order = np.argsort(ids, kind="stable")
        ids, parts = ids[order], parts[order]
        is_last = np.append(ids[1:] != ids[:-1], np.ones(min(len(ids), 1), np.bool_))
        ids = ids[is_last]
        # With 32 bits for each id, at most 3 % of other ids are looked up in vain.
        index_bits = min(max((32 * len(ids) - 1).bit_length(), 6), 24)
        may_have = np.zeros(1 << index_bits, np.bool_)
        may_have[_upper(ids, index_bits)] = True
        return cls(ids, parts[is_last], may_have)

    def alive(self, ids: "Int64s", part: int) -> "Bools":
        """Return which rows of a part no later part removes."""
        is_alive = np.ones(len(ids), np.bool_)
        if len(self.ids):
            asked = np.flatnonzero(self.may_have[_upper(ids, len(self.may_have).bit_length() - 1)])
            places = np.minimum(np.searchsorted(self.ids, ids[asked]), len(self.ids) - 1)
            is_gone = (self.ids[places] == ids[asked]) & (self.last_parts[places] > part)
            is_alive[asked[is_gone]] = False
        return is_alive


def removals(files: PartFiles, *, parts: int) -> Mapping[str, Removals]:
    """Return the removals of each table of `INCREMENTAL_TABLES`.

    `files` are those of `state_removals`. The checkpoint has so many parts.
    Raises StoreError: a file cannot be read; the message names it.
    """
    gone: dict[str, list[list[Int64s]]] = {name: [[] for _ in range(parts)] for name in tables.INCREMENTAL_TABLES}
    for part, batch in files.batches(("table_name", "removed_id"), rows=_ROWS_PER_BATCH):
        names = batch.column("table_name").dictionary_encode()
        for index, name in enumerate(names.dictionary.to_pylist()):
            if name in gone:
                ids = batch.column("removed_id").filter(pc.equal(names.indices, index))
                gone[name][part].append(ids.to_numpy())
    nothing = np.zeros(0, np.int64)
    return {name: Removals.of([np.concatenate([nothing, *of_part]) for of_part in own]) for name, own in gone.items()}


def read_checkpoint(
    uri_of: Callable[[str], str], parts: Sequence[Attempt], table: str, *, columns: Sequence[str]
) -> "pa.Table":
    """Return the rows of one table that are in the state after the last part of a checkpoint.

    `uri_of` returns the path of a table. `parts` are the attempts that stored the parts, in order; the first is full. A
    removal removes the rows of earlier parts. Columns that the table does not have are missing.
    Raises StoreError: a table cannot be read; the message names the damaged file.
    """
    if table not in tables.INCREMENTAL_TABLES:
        parts = parts[-1:]
    names = [*columns, *(() if tables.ROW_ID in columns else (tables.ROW_ID,))]
    removed = removals(checkpoint_files(uri_of(tables.STATE_REMOVALS), parts), parts=len(parts)).get(table)
    live = []
    for part, rows in enumerate(read_each_attempt(uri_of(table), parts, names)):
        alive = np.ones(rows.num_rows, dtype=np.bool_)
        if rows.num_rows and removed is not None:
            alive = removed.alive(rows[tables.ROW_ID].to_numpy(), part)
        asked = rows.select([name for name in columns if name in rows.column_names])
        live.append(asked if alive.all() else asked.filter(pa.array(alive)))
    return pa.concat_tables(live)


def _with_row_groups(fragment: Any, may_have: Callable[[Bounds], bool]) -> Any:  # noqa: ANN401 - a fragment of Arrow
    kept = [group.id for group in fragment.row_groups if may_have(group.statistics or {})]
    return fragment.subset(row_group_ids=kept)


def _by_constants(
    fragments: Sequence[Any], columns: Sequence[str], schema: "pa.Schema", *, least: int
) -> "Iterator[_Divided]":
    """Yield parts of fragments, and of each the columns of integers with one value."""
    kinds = {name: schema.field(name).type for name in columns}
    whole = {name: kind for name, kind in kinds.items() if pa.types.is_integer(kind) or pa.types.is_boolean(kind)}
    for fragment in fragments:
        footer = fragment.metadata
        if footer.num_rows < least:
            yield fragment, ()
            continue
        for group in fragment.row_groups:
            row_group = footer.row_group(group.id)
            chunks = (row_group.column(place) for place in range(row_group.num_columns))
            constants = tuple(
                (chunk.path_in_schema, chunk.statistics.min, whole[chunk.path_in_schema])
                for chunk in chunks
                if row_group.num_rows >= least and chunk.path_in_schema in whole and _has_one_value(chunk.statistics)
            )
            # Arrow yields no rows without a column.
            yield fragment.subset(row_group_ids=[group.id]), constants if len(constants) < len(columns) else ()


def _has_one_value(statistics: Any) -> bool:  # noqa: ANN401 - statistics of Arrow
    return bool(
        statistics
        and statistics.has_min_max
        and statistics.has_null_count
        and not statistics.null_count
        and statistics.min == statistics.max
    )


def _completed(batch: "pa.RecordBatch", names: Sequence[str], constants: "Mapping[str, pa.Array]") -> "pa.RecordBatch":
    """Return a batch with constant columns, of which each is at least as long as the batch."""
    if not constants:
        return batch
    columns = [constants[name].slice(0, batch.num_rows) if name in constants else batch.column(name) for name in names]
    return pa.RecordBatch.from_arrays(columns, names=[*names])


def _upper(ids: "Int64s", bits: int) -> "Int64s":
    upper: Int64s = (ids.view(np.uint64) >> np.uint64(64 - bits)).view(np.int64)
    return upper
