"""A page that differs from its checksum is refused. Spark by default reads other values, without an error.

No file has a `.crc` beside it, as in an object store.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path
from random import Random

import pytest

from jobs.lake.lake import Lake
from jobs.pipeline.slices import parse_bound, slices_between
from jobs.planning.log_pin import pin_input
from jobs.readers import published, published_rows
from jobs.replay.computed import compute
from jobs.replay.pinned import pin
from jobs.replay.sizes import Sizes
from jobs.spark.lazy_session import LazySession
from jobs.spark.session import COMPARE_PAGES
from tests.support.clicks_log import PARTITION, PIPELINE, SCHEMA, day_rows
from tests.support.flipped_bits import bits_in_pages, flip, last_bits
from tests.support.fuzzing import seeds
from tests.support.logs import make_log
from tests.support.read_logs import read_log
from tests.support.replays import order_of, pipeline_of, run_range
from tests.support.spark_session import SparkSession
from windowlib.errors import HindcastError, LogError
from windowlib.records import tables

pytestmark = pytest.mark.spark
BOUNDS, NEXT = ("1970-01-01", "1970-01-02"), ("1970-01-02", "1970-01-03")


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with a log of two days, each a file, whose numbers cannot be compressed."""
    place, random = tmp_path_factory.mktemp("pages"), Random(3)
    rows = [[(*row, random.getrandbits(60)) for row in day_rows(day, *range(0, 3000, 7))] for day in range(2)]
    make_log(spark, str(place / "log"), rows, schema=f"{SCHEMA}, number bigint", partition_by=PARTITION)
    for checksum in place.rglob(".*.crc"):
        checksum.unlink()
    return place


@contextmanager
def flipped(path: Path, bit: int) -> Iterator[None]:
    good = flip(path, bit)
    try:
        yield
    finally:
        path.write_bytes(good)


def test_a_damaged_page_of_the_log_is_an_error_that_names_the_file(spark: SparkSession, lake: Path) -> None:
    pipeline = pipeline_of(PIPELINE)
    slices = slices_between(pipeline, *(parse_bound(pipeline, text) for text in BOUNDS))
    pinned = pin_input(pipeline, Lake(root=str(lake)), slices)
    [file] = (lake / "log").rglob("day=1970-01-01/part-*.parquet")

    def numbers() -> list[int]:
        return sorted(one.record["number"] for one in read_log(spark, pipeline, pinned, slices).records)

    expected, errors = numbers(), []
    for seed in seeds(1):
        for bit in bits_in_pages(file, Random(seed), 4):
            with flipped(file, bit):
                try:
                    assert numbers() == expected, f"seed {seed}: bit {bit} is silent"
                except LogError as error:
                    errors.append(str(error))
    named = f"file day={date(1970, 1, 1)}/{file.name} of version 1"
    assert len(errors) >= 2
    assert [error for error in errors if named not in error or "\n" in error] == []


def test_a_session_of_a_user_refuses_a_damaged_page_of_our_tables(spark: SparkSession, lake: Path) -> None:
    """The file is damaged after `published` has compared the ids and before Spark reads it."""
    pipeline = pipeline_of(PIPELINE)
    assert run_range(None, lake, pipeline, BOUNDS, sizes=Sizes(local_records=10**9)).is_published
    other = spark.newSession()
    [file] = (lake / pipeline.name / tables.WINDOW_OUTPUTS).rglob("part-*.parquet")
    bit = last_bits(file)["clicks"]
    for rows in (published, partial(published_rows, table=tables.WINDOW_OUTPUTS)):
        other.conf.set(COMPARE_PAGES, "false")
        frame = rows(other, str(lake), pipeline.name, verify=False)
        with flipped(file, bit), pytest.raises(Exception, match=file.name):
            frame.collect()
        assert rows(other, str(lake), pipeline.name, verify=False).count() > 0


WAYS = {"in this process": (10**9, ""), "in workers": (0, ""), "sorted in workers": (0, "  order: [number]\n")}
"""Where tasks run: the largest number of records that tasks in this process read, and the log's order."""


@pytest.mark.parametrize("way", WAYS)
def test_a_damaged_page_stops_a_replay_with_the_name_of_the_file(
    spark: SparkSession, lake: Path, tmp_path: Path, way: str
) -> None:
    """The pages of the log and of the checkpoint. The driver itself reads only the ids of a large checkpoint."""
    local_records, order = WAYS[way]
    sizes = Sizes(local_records=local_records, content_rows=0)
    (tmp_path / "log").symlink_to(lake / "log")
    pipeline = pipeline_of(PIPELINE.replace("  slice:", f"{order}  slice:").replace("10s", "9d"))
    run = run_range(spark, tmp_path, pipeline, BOUNDS).runs[-1]
    after = replace(order_of(tmp_path, pipeline, NEXT), before=run.checkpoint)
    [state] = (tmp_path / pipeline.name / tables.WINDOW_STATE).rglob("part-*.parquet")
    with flipped(state, last_bits(state)["edge_sum"]), pytest.raises(HindcastError, match=state.name) as of_state:
        compute(LazySession.of(spark), pin(after, sizes=sizes))
    [log] = (tmp_path / "log").rglob("day=1970-01-02/part-*.parquet")
    with flipped(log, last_bits(log)["at_ms"]), pytest.raises(LogError, match=log.name) as of_log:
        compute(LazySession.of(spark), pin(after, sizes=sizes))
    assert "\n" not in f"{of_state.value}{of_log.value}"
    assert "table window_state" in str(of_state.value) or "/window_state " in str(of_state.value)
