"""A pipeline's directory with committed, removed and left files, on a disk or in an object store."""

from dataclasses import dataclass, field
from random import Random

import pyarrow as pa

from jobs.lake.delta_tables import open_delta
from jobs.lake.file_commits import commit_files, new_path
from jobs.lake.lake import Lake
from jobs.lake.leftover_files import LakeFiles
from jobs.lake.store import ensure_table
from jobs.lake.table_files import TableFile
from jobs.storage import file_system, make_directory, open_output
from windowlib.columnar.arrow import arrow_type
from windowlib.records import tables

PIPELINE = "sales"
TABLE = tables.window_outputs({"k": "bigint"}, {"n": "bigint"})
SLICE_IDS = ("2013-02-01", "2013-02-01T00:00", "2013-02-01T05:45+05:45", "a b%2F/ü", "x=y,z&?#")


@dataclass
class Scene:
    """Files below a lake, drawn at random. Paths are relative to the pipeline's directory."""

    lake: Lake
    rng: Random
    committed: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)
    left: set[str] = field(default_factory=set)
    foreign: set[str] = field(default_factory=set)

    @property
    def files(self) -> LakeFiles:
        return LakeFiles(lake=self.lake, pipeline=PIPELINE)

    @property
    def directory(self) -> str:
        return self.lake.ledger(PIPELINE).rpartition("/")[0]

    def make(self) -> "Scene":
        """Commit files of several attempts at slices of any name, remove one slice, and leave files beside them."""
        uri = self.lake.table(PIPELINE, TABLE.name)
        ensure_table(uri, TABLE)
        for number, slice_id in enumerate(SLICE_IDS):
            attempt = (slice_id, f"{number:032x}")
            paths = [new_path(attempt, f"part-{index}.parquet") for index in range(self.rng.randrange(1, 4))]
            for path in paths:
                self.write(f"{TABLE.name}/{path}", is_parquet=True)
            commit_files(uri, [TableFile(path, attempt) for path in paths])
            self.committed |= {f"{TABLE.name}/{path}" for path in paths}
            left = [new_path(attempt, f"left-{index}.parquet") for index in range(self.rng.randrange(3))]
            self.left |= {self.write(f"{TABLE.name}/{path}") for path in left}
        gone = self.rng.choice(SLICE_IDS)
        open_delta(uri).delete(f"slice_id = '{gone}'")
        place = new_path((gone, ""), "").rstrip("/")
        self.removed = {path for path in self.committed if f"/{place}" in f"/{path}"}
        self.left.add(self.write("_scratch/0a1b/bucket-0.arrow"))
        self.left.add(self.write("_probe/00ff/_delta_log/00000000000000000000.json"))
        unnamed = (
            f"{TABLE.name}/_delta_log/{9:020}.json#1",
            "ledger/part-2.parquet#12",
            f"ledger/_head/.{7:020}.json.{7:032x}",
        )
        self.left |= {self.write(path) for path in unnamed}
        self.foreign = {
            self.write(path)
            for path in ("ledger/part-1.parquet", "ledger/attempt_id=00/x.parquet", f"{TABLE.name}/readme", "notes.txt")
        }
        return self

    def write(self, path: str, *, is_parquet: bool = False) -> str:
        """Write a file with one row, or with some bytes."""
        import pyarrow.parquet as pq

        place = f"{self.directory}/{path}"
        make_directory(place.rpartition("/")[0])
        with open_output(place) as out:
            if is_parquet:
                kinds = {name: arrow_type(node) for name, node in TABLE.stored_columns().items()}
                names = [name for name in kinds if name not in tables.PARTITION_COLUMNS]
                pq.write_table(pa.table({name: pa.nulls(1, kinds[name]) for name in names}), out)
            else:
                out.write(b"x" * 10)
        return path

    def stored(self) -> set[str]:
        """Return all files but those of Delta's logs of tables."""
        import pyarrow.fs as pafs

        system, root = file_system(self.directory)
        found = system.get_file_info(pafs.FileSelector(root, recursive=True))
        paths = {one.path[len(root) + 1 :] for one in found if one.type == pafs.FileType.File}
        return {path for path in paths if f"{TABLE.name}/_delta_log" not in path or "#" in path}


def check_leftover_files(lake: Lake, rng: Random) -> None:
    """Check that exactly the left files are listed and not named, and that they can be removed."""
    scene = Scene(lake=lake, rng=rng).make()
    _system, root = file_system(scene.directory)
    assert scene.stored() == scene.committed | scene.left | scene.foreign
    listed = {one.path[len(root) + 1 :]: one for one in scene.files.listed()}
    assert listed.keys() == scene.committed | scene.left
    assert all(one.bytes > 0 and one.modified_ms > 0 for one in listed.values())
    named = scene.files.named([TABLE.name])
    assert {path for path, one in listed.items() if one.path not in named} == scene.left
    scene.files.remove([listed[path].path for path in scene.left] * 2)
    assert scene.stored() == scene.committed | scene.foreign
    assert {one.attempt_id for one in listed.values() if one.table == "_scratch"} == {"0a1b"}
