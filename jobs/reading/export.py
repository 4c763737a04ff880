"""Writes rows to a place outside the lake, whole or not at all: as a Parquet file, a CSV file or a Delta table."""

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import uuid4

from jobs.lake.parquet_files import parquet_writer
from jobs.lake.plain_table import append_plain, create_plain, open_plain, write_rows
from jobs.new_file import give_new_name
from jobs.plain_text import escaped_json
from jobs.reading.plain_values import column_values, plain
from jobs.storage import is_remote
from windowlib.errors import RequestError
from windowlib.libraries import pa


class Format(Enum):
    """The format of an export. A Delta table is a directory, the others are one file."""

    PARQUET = "parquet"
    CSV = "csv"
    DELTA = "delta"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What was written."""

    path: str
    format: str
    rows: int
    bytes: int

    def to_json(self) -> dict[str, Any]:
        """Return the values as JSON data."""
        return asdict(self)


def export(
    blocks: "Iterable[pa.Table]", target: str, form: Format, *, schema: "pa.Schema", notes: Mapping[str, str]
) -> Exported:
    """Write rows to a new file or directory, which appears when it is complete.

    A process that is killed leaves a hidden file or directory beside the target, named `.<name>-….part`. The memory is
    that of a block or two. Where `target` is there must be nothing, or for a Delta table an empty directory. In CSV, a
    column of structs, lists or bytes has JSON texts. The footer of a Parquet file, or the commit of a Delta table,
    stores the `notes`.

    Raises:
        RequestError: the target exists, is a URI, or cannot be written.
        HindcastError: as `blocks` raises. Nothing was written.
    """
    rows = 0

    def counted() -> "Iterator[pa.Table]":
        nonlocal rows
        for block in blocks:
            rows += block.num_rows
            yield block

    write: Mapping[Format, Callable[..., None]] = {
        Format.PARQUET: _write_parquet,
        Format.CSV: _write_csv,
        Format.DELTA: _write_delta,
    }
    with _new_place(target, is_directory=form is Format.DELTA) as place:
        write[form](place, counted(), schema, notes=notes)
        size = sum(file.stat().st_size for file in (place.rglob("*") if place.is_dir() else [place]) if file.is_file())
    return Exported(path=target, format=form.value, rows=rows, bytes=size)


@contextmanager
def _new_place(target: str, *, is_directory: bool) -> Iterator[Path]:
    """Give a hidden place beside the target, and move it to the target at the end."""
    if is_remote(target):
        raise RequestError(f"an export is written to this machine; {target} is a URI. Write it to a path, and copy it")
    path = Path(target)
    _refuse_existing(path, is_directory=is_directory)
    part = path.parent / f".{path.name}-{uuid4().hex}.part"
    try:
        yield part
        if is_directory:
            part.rename(path)  # replaces an empty directory, and no other
        else:
            give_new_name(part, path)
    except OSError as error:
        raise RequestError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        if part.is_dir():
            shutil.rmtree(part, ignore_errors=True)
        else:
            part.unlink(missing_ok=True)


def _refuse_existing(path: Path, *, is_directory: bool) -> None:
    if not path.parent.is_dir():
        raise RequestError(f"{path} cannot be written: there is no directory {path.parent}")
    if is_directory and path.is_dir() and not any(path.iterdir()):
        return
    if path.exists() or path.is_symlink():
        what = "an empty directory" if is_directory else "a file"
        raise RequestError(f"{path} exists and is not overwritten; name {what} that does not exist yet, or remove it")


def _write_parquet(place: Path, blocks: "Iterable[pa.Table]", schema: "pa.Schema", *, notes: Mapping[str, str]) -> None:
    with parquet_writer(str(place), schema) as writer:
        for block in blocks:
            writer.write_table(block)
        writer.add_key_value_metadata(notes)


def _write_csv(place: Path, blocks: "Iterable[pa.Table]", schema: "pa.Schema", *, notes: Mapping[str, str]) -> None:  # noqa: ARG001 - CSV stores no notes
    from pyarrow import csv

    plain_fields = [field.with_type(pa.string()) if _is_nested(field.type) else field for field in schema]
    with csv.CSVWriter(str(place), pa.schema(plain_fields)) as writer:
        for block in blocks:
            columns = [
                pa.array([None if value is None else escaped_json(plain(value)) for value in column_values(column)])
                if _is_nested(field.type)
                else column
                for field, column in zip(schema, block.columns, strict=True)
            ]
            named = zip(plain_fields, columns, strict=True)
            writer.write_table(pa.table([column.cast(field.type) for field, column in named], pa.schema(plain_fields)))


def _write_delta(place: Path, blocks: "Iterable[pa.Table]", schema: "pa.Schema", *, notes: Mapping[str, str]) -> None:
    create_plain(str(place), schema, by_slice=False)
    actions = [action for block in blocks for action in write_rows(str(place), block, by_slice=False)]
    table = open_plain(str(place))
    assert table is not None, "it was created"
    append_plain(table, actions, notes=notes)


def _is_nested(kind: "pa.DataType") -> bool:
    return bool(pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
