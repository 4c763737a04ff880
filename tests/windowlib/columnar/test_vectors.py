"""The test vectors of docs/reference/checkpoints.md in plain Python and numpy. `test_hashes_spark.py` has Spark's."""

import pytest

from tests.support.hash_vectors import Vector, vectors
from tests.support.plain_hashes import plain_hash, plain_row
from windowlib.bounds import wrap_int64
from windowlib.columnar.hashing import row_hashes, value_hashes
from windowlib.records.row_ids import row_id
from windowlib.records.xxh64 import SEED, name_seed

pytestmark = pytest.mark.usefixtures("each_way_to_hash")

ALL = list(vectors())


def test_the_document_has_vectors_of_values_and_of_rows() -> None:
    assert len([one for one in ALL if one.table is None]) > 20
    assert len([one for one in ALL if one.table is not None]) > 3


@pytest.mark.parametrize("vector", ALL, ids=str)
def test_a_vector_in_plain_python_and_in_numpy(vector: Vector) -> None:
    if vector.table is None:
        value, kind = vector.row["value"], vector.kinds["value"]
        assert wrap_int64(plain_hash(value, kind, SEED)) == vector.hash
        assert wrap_int64(int(value_hashes(vector.columns()["value"].combine_chunks(), SEED)[0])) == vector.hash
        return
    assert plain_row(vector.table, vector.row, vector.kinds) == vector.hash
    assert row_hashes(vector.columns(), name_seed(vector.table)).tolist() == [vector.hash]
    if all(value is None or isinstance(value, int | str) for value in vector.row.values()):
        assert row_id(vector.table, vector.row) == vector.hash
