"""The values and texts of columns of a Delta log are those of Arrow, however they are read."""

import subprocess
import sys
from datetime import date, timedelta
from random import Random
from typing import Any

import pyarrow as pa

from jobs.lake.arrow_types import texts_of, values_of
from tests.support.fuzzing import seeds

KINDS: dict[pa.DataType, list[Any]] = {
    pa.int64(): [-(1 << 63), -1, 0, 7, (1 << 63) - 1],
    pa.int32(): [-5, 0, 9],
    pa.date32(): [-719_163, -719_162, -1, 0, 15_706, 2_932_896, 2_932_897],
    pa.string(): ["", "a", "é", "2013-02-08"],
    pa.timestamp("us"): [0, 1_000_001],
    pa.bool_(): [True, False],
}


def test_values_and_texts_are_those_of_arrow() -> None:
    for seed in seeds(300):
        random = Random(seed)
        kind = random.choice([*KINDS])
        pool = KINDS[kind] if random.random() < 0.5 else KINDS[kind][2:5] or KINDS[kind]
        chunks = [
            pa.array(random.choices([*pool, None] if random.random() < 0.3 else pool, k=random.randint(1, 6)), kind)
            for _ in range(random.randint(0, 3))
        ]
        column = pa.chunked_array([chunk.slice(random.randint(0, 2)) for chunk in chunks], kind)
        assert texts_of(column) == column.cast(pa.string()).to_pylist(), f"seed {seed}: {kind}"
        if kind != pa.date32():  # Python has no dates outside the years 1 to 9999
            assert values_of(column) == column.to_pylist(), f"seed {seed}: {kind}"


def test_common_columns_import_neither_pandas_nor_pyarrow_compute() -> None:
    script = (
        "import sys\n"
        "import pyarrow as pa\n"
        "from jobs.lake.arrow_types import texts_of, values_of\n"
        "buffer = pa.py_buffer(bytes(16))\n"
        "longs = pa.chunked_array([pa.Array.from_buffers(pa.int64(), 2, [None, buffer])])\n"
        "days = pa.chunked_array([pa.Array.from_buffers(pa.date32(), 2, [None, buffer])])\n"
        "assert values_of(longs) == [0, 0] and texts_of(days) == ['1970-01-01'] * 2\n"
        "print(*{'pandas', 'pyarrow.compute'} & {*sys.modules})\n"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert not done.stdout.strip()


def test_dates_of_all_centuries_have_the_texts_of_iso_8601() -> None:
    days = [date.min, date.max, *(date(1, 1, 1) + timedelta(days=number) for number in range(0, 3_652_058, 997))]
    assert texts_of(pa.chunked_array([pa.array(days)])) == [day.isoformat() for day in days]
