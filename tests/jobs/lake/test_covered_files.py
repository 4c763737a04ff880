"""The bytes of a log's files are compared with Hadoop's checksum files, and with digests that were stored."""

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from jobs.lake.covered_files import Cover, CoveredFile, StoredDigests, check_file, cover_of, digests_text
from tests.support.flips import flipped
from tests.support.fuzzing import chances, seeds
from tests.support.log_files import write_checksum_file
from windowlib.errors import LogError

SYSTEM = pafs.LocalFileSystem()


def file_at(path: Path, stored: bytes | None = None) -> CoveredFile:
    owner = "slice 2026-01-05"
    return CoveredFile(uri="/lake/log", path=path.name, place=str(path), owner=owner, way_on="Go on", stored=stored)


def write_parquet(path: Path, random: random.Random, *, checksums: bool, rows: int = 50) -> None:
    table = pa.table(
        {"a": pa.array(random.choices(range(99), k=rows), pa.int64()), "b": [f"x{i}" for i in range(rows)]}
    )
    pq.write_table(table, path, write_page_checksum=checksums, use_dictionary=random.random() < 0.5)


@pytest.mark.parametrize("cover", [Cover.PAGES, Cover.NOTHING])
def test_page_checksums_are_seen_in_the_first_page(tmp_path: Path, cover: Cover) -> None:
    for seed in seeds(20):
        chance = random.Random(seed)
        path = tmp_path / f"{seed}.parquet"
        write_parquet(path, chance, checksums=cover is Cover.PAGES, rows=chance.choice((1, 50, 30_000)))
        assert cover_of(SYSTEM, str(path)) is cover
        write_checksum_file(path)
        assert cover_of(SYSTEM, str(path)) is Cover.CHECKSUM_FILE


@pytest.mark.parametrize("head", [b"", b"PAR1", b"PAR1\x15", b"PAR1\x15\x80\x80", b"{}"])
def test_a_short_file_has_no_page_checksums(tmp_path: Path, head: bytes) -> None:
    path = tmp_path / "x"
    path.write_bytes(head)
    assert cover_of(SYSTEM, str(path)) is Cover.NOTHING
    assert check_file(SYSTEM, file_at(path)) is not None


def test_every_bit_of_a_file_and_of_its_checksum_file_is_covered(tmp_path: Path) -> None:
    """Sizes around the 512 bytes of a checksum, and files that are read in several pieces."""
    for seed in seeds(30):
        chance = random.Random(seed)
        piece_bytes = chance.choice((1, 700, 1_024, 2_100, 1 << 22))
        path = tmp_path / f"{seed}"
        path.write_bytes(chance.randbytes(chance.choice((1, 511, 512, 513, 1_024, 3_000, 9_000))))
        sums = write_checksum_file(path)
        assert check_file(SYSTEM, file_at(path), piece_bytes=piece_bytes) is None
        for harmed in (path, sums):
            bit = chance.randrange(harmed.stat().st_size * 8)
            if harmed == sums and path.stat().st_size <= 512 and 32 <= bit < 64:
                continue  # the only checksum of a short file is right, whatever number of bytes it is for
            with (
                flipped(harmed, bit),
                pytest.raises(LogError, match=r"slice 2026-01-05\) of event log /lake/log and its checksum file \."),
            ):
                check_file(SYSTEM, file_at(path), piece_bytes=piece_bytes)
        sums.write_bytes(sums.read_bytes()[:-1])
        with pytest.raises(LogError, match="does not have a checksum for each part"):
            check_file(SYSTEM, file_at(path), piece_bytes=piece_bytes)


def test_an_empty_file_may_have_a_checksum_file(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.write_bytes(b"")
    write_checksum_file(path)
    assert check_file(SYSTEM, file_at(path)) is None


def test_a_digest_covers_what_page_checksums_do_not_cover(tmp_path: Path) -> None:
    for seed in seeds(30):
        chance = random.Random(seed)
        piece_bytes = chance.choice((1, 700, 1_024, 2_100, 1 << 22))
        path, checksums = tmp_path / f"{seed}.parquet", chance.random() < 0.5
        write_parquet(path, chance, checksums=checksums)
        digest = check_file(SYSTEM, file_at(path), piece_bytes=piece_bytes)
        size, footer = path.stat().st_size, int.from_bytes(path.read_bytes()[-8:-4], "little") + 8
        first = size - footer if checksums else 0
        with (
            flipped(path, chance.randrange(first * 8, size * 8)),
            pytest.raises(LogError, match="is not the file that an earlier run has read"),
        ):
            check_file(SYSTEM, file_at(path, digest), piece_bytes=piece_bytes)
        assert check_file(SYSTEM, file_at(path, digest), piece_bytes=piece_bytes) == digest


def test_a_reader_with_page_checksums_compares_the_footer_only(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    write_parquet(path, random.Random(1), checksums=True, rows=5_000)
    write_checksum_file(path)
    with flipped(path, 8 * 2_000):
        check_file(SYSTEM, file_at(path), footer_only=True)
        with pytest.raises(LogError, match="the 512 bytes from 1,536 on"):
            check_file(SYSTEM, file_at(path))
    with flipped(path, 8 * (path.stat().st_size - 20)), pytest.raises(LogError):
        check_file(SYSTEM, file_at(path), footer_only=True)


def test_texts_of_digests_can_be_joined() -> None:
    for chance in chances(20):
        digests = {f"p{number}/é\udc80": chance.randbytes(8) for number in range(chance.randrange(40))}
        paths = [*digests]
        half = len(paths) // 2
        texts = [digests_text({path: digests[path] for path in part}) for part in (paths[:half], paths[half:])]
        stored = StoredDigests.of([*texts, texts[0]])
        assert {path: stored.of_path(path) for path in paths} == digests
        assert stored.of_path("other") is None
        assert sum(map(len, texts)) == 20 * len(digests)
