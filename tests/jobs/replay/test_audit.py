"""The audit as the acker's client: lost, doubled and swapped rows over real Delta tables, made without Spark."""

from itertools import permutations, product
from random import Random

import pyarrow as pa
import pytest

from jobs.replay import committed_rows
from jobs.replay.committed_rows import EDGES, REMOVED_EDGES, REMOVED_IDS, CommittedRows, ids_query
from jobs.replay.equations import READ, Audit
from tests.support import audited_lake
from tests.support.audited_lake import ATTEMPT, SIDE, SLICES, STORED, Attempt, Harm, HonestReplay, Lakes, pick
from windowlib.errors import AuditError
from windowlib.records import tables

ROWS = tuple(name for name in STORED if name != tables.TALLIES)
HARMS: tuple[Harm, ...] = (
    audited_lake.lose,
    audited_lake.double,
    audited_lake.triple,
    audited_lake.swap_for_another,
    audited_lake.keep_the_sum,
    audited_lake.move_to_another_slice,
    audited_lake.give_to_another_attempt,
)


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> Lakes:
    return Lakes(tmp_path_factory.mktemp("audited"))


@pytest.fixture(autouse=True)
def _engine(rng: Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let DuckDB or Python sum up the rows."""
    monkeypatch.setattr(committed_rows, "FEW_ROWS", rng.choice((0, 5_000)))


def refused(audit: Audit) -> str:
    with pytest.raises(AuditError, match="does not close") as failed:
        audit.close()
    return str(failed.value)


def test_an_honest_attempt_closes(rng: Random, lakes: Lakes) -> None:
    found = lakes.audit(HonestReplay(rng).attempt()).close()
    assert [(check.slice_id, check.check) for check in found] == [
        (slice_id, f"audit_{equation}") for slice_id in SLICES for equation in ("fates", "edges", "rows")
    ]


def test_an_attempt_without_records_or_tables_closes(lakes: Lakes) -> None:
    assert len(lakes.audit(Attempt(before=None)).close()) == 9


@pytest.mark.parametrize(
    ("harm", "table"),
    [
        pytest.param(harm, table, id=f"{harm.__name__}-{table}")
        for harm, table in product(HARMS, STORED)
        # The ids of tallies are in no equation: what they say is.
        if (harm, table) != (audited_lake.keep_the_sum, tables.TALLIES)
    ],
)
def test_no_harm_to_a_row_goes_unseen(rng: Random, lakes: Lakes, harm: Harm, table: str) -> None:
    attempt = HonestReplay(rng).attempt()
    harm(attempt, table, rng)
    text = refused(lakes.audit(attempt))
    assert any(f"slice {slice_id}, attempt {ATTEMPT}" in text for slice_id in SLICES)


@pytest.mark.parametrize("table", ROWS)
def test_the_error_names_slice_equation_and_both_sides(rng: Random, lakes: Lakes, table: str) -> None:
    attempt = HonestReplay(rng).attempt()
    row = pick(attempt, table, rng)
    count = len(attempt.of(table, row["slice_id"]))
    attempt.rows[table].remove(row)
    text = refused(lakes.audit(attempt))
    assert f"slice {row['slice_id']}, attempt {ATTEMPT}: the equation of the rows of {table} does not close" in text
    assert f"emitted by the tasks {count} (xor " in text
    assert f" = committed {count - 1} (xor " in text
    assert "A run replays it once by itself" in text


@pytest.mark.parametrize(("source", "target"), list(permutations(SIDE, 2)))
def test_a_row_that_stands_in_another_table_makes_both_fail(
    rng: Random, lakes: Lakes, source: str, target: str
) -> None:
    """The fates in sum are as they were, whichever record stands where: a row is acked by its own table only."""
    attempt = HonestReplay(rng).attempt()
    row = next(row for row in attempt.rows[source] if row.get("missed_all", True))
    attempt.rows[source].remove(row)
    attempt.rows[target].append({**row, "missed_all": True})
    text = refused(lakes.audit(attempt))
    assert f"rows of {source}" in text
    assert f"rows of {target}" in text
    assert "fates of slice" not in text


def test_two_rows_that_change_places_make_both_tables_fail(rng: Random, lakes: Lakes) -> None:
    """No count changes anywhere: each table has a row more and a row less."""
    attempt = HonestReplay(rng).attempt()
    late, gap = tables.LATE_RECORDS, tables.UNASSIGNED_RECORDS
    one = next(row for row in attempt.rows[late] if row["missed_all"])
    other = next(row for row in attempt.of(gap, one["slice_id"]))
    attempt.rows[late][attempt.rows[late].index(one)] = {**other, "missed_all": True}
    attempt.rows[gap][attempt.rows[gap].index(other)] = one
    text = refused(lakes.audit(attempt))
    for open_equation in (f"rows of {late}", f"rows of {gap}", "late records", "unassigned records"):
        assert open_equation in text


def test_the_sides_of_edges_are_spelt_by_reason(rng: Random, lakes: Lakes) -> None:
    attempt = HonestReplay(rng).attempt()
    closed = next(row for row in attempt.rows[tables.TALLIES] if row["term"].startswith("closed:"))
    closed["record_count"] += 1
    text = refused(lakes.audit(attempt))
    assert (
        f"slice {closed['slice_id']}, attempt {ATTEMPT}: the equation of the edges does not close: state before" in text
    )
    assert " + new " in text
    assert " = state after " in text
    assert f" + {closed['term']} " in text


def test_the_state_before_is_part_of_the_first_slice(rng: Random, lakes: Lakes) -> None:
    attempt = HonestReplay(rng).attempt()
    attempt.before = None
    text = refused(lakes.audit(attempt))
    assert f"slice {SLICES[0]}" in text
    assert "the equation of the edges does not close: state before 0 (" in text
    assert f"of slice {SLICES[1]}" not in text, "the others start from what the one before left"


@pytest.mark.parametrize("fate", [READ, "assigned", "late", "unassigned", "invalid"])
@pytest.mark.parametrize("harm", ["lost", "doubled"])
def test_what_the_tasks_said_of_fates_is_held_against_the_rows(rng: Random, lakes: Lakes, fate: str, harm: str) -> None:
    attempt = HonestReplay(rng).attempt()
    tallies = attempt.rows[tables.TALLIES]
    row = next(row for row in tallies if (row["equation"], row["term"]) == ("fates", fate))
    if harm == "lost":
        tallies.remove(row)
    else:
        tallies.append(row)
    equation = "fates" if fate in {READ, "assigned"} else f"{fate} records"
    assert f"the equation of the {equation} does not close" in refused(lakes.audit(attempt))


def test_rows_of_a_table_that_only_the_tallies_know_are_audited_too(rng: Random, lakes: Lakes) -> None:
    """A side output of a user function, say."""
    side = "side_outputs_alerts"
    attempt = HonestReplay(rng).attempt()
    one = {"slice_id": SLICES[1], "attempt_id": ATTEMPT, "row_id": 77}
    told = {"equation": "rows", "term": side, "record_count": 1, "id_xor": 77, "id_sum": 77}
    attempt.rows[tables.TALLIES].append(one | told)
    attempt.rows[side] = [one]
    lakes.audit(attempt).close()
    attempt.rows[side] = [one, one]
    text = refused(lakes.audit(attempt))
    assert f"rows of {side}" in text
    assert (
        "emitted by the tasks 1 (xor 000000000000004d, sum 000000000000004d) = committed 2 (xor 0000000000000000"
        in text
    )


def test_many_open_equations_are_counted_and_some_are_named(rng: Random, lakes: Lakes) -> None:
    """A table that went: every equation of every slice that needs it."""
    attempt = HonestReplay(rng).attempt()
    attempt.rows[tables.TALLIES].clear()
    text = refused(lakes.audit(attempt))
    assert text.count(" of slice ") == 5
    assert " more." in text
    assert len(text) < 1_500


def test_sums_beyond_64_bits_wrap_as_the_tasks_wrap_them(lakes: Lakes) -> None:
    attempt = Attempt(before=None, slice_ids=(SLICES[0],))
    place = {"slice_id": SLICES[0], "attempt_id": ATTEMPT}
    top = 2**63 - 1
    attempt.rows[tables.WATERMARKS] = [place | {"row_id": top - number} for number in range(3)]
    told = {"equation": "rows", "term": tables.WATERMARKS, "record_count": 3, "id_sum": 3 * top - 3 - 2**64}
    attempt.rows[tables.TALLIES] = [place | told | {"row_id": 1, "id_xor": top ^ (top - 1) ^ (top - 2)}]
    assert len(lakes.audit(attempt).close()) == 3


def test_python_and_duckdb_give_the_same_sums(rng: Random, monkeypatch: pytest.MonkeyPatch) -> None:
    values: dict[pa.DataType, tuple[object, ...]] = {
        pa.int64(): (-(2**63), 2**63 - 1, 1, 5, None), pa.bool_(): (True, False, None), pa.string(): ("a", "b"),
    }  # fmt: skip
    edges = EDGES, REMOVED_EDGES, REMOVED_IDS, EDGES.of_all_slices(), REMOVED_EDGES.of_all_slices()
    for query in (*edges, ids_query(tables.LATE_RECORDS, "record_hash"), ids_query(tables.TIMERS, tables.ROW_ID)):
        kinds = dict.fromkeys(query.columns, pa.int64()) | dict.fromkeys(query.groups, pa.string())
        kinds |= {name: pa.bool_() for name in query.columns if name in {"is_orphan", "missed_all"}}
        for count in (1, 2, 50):
            made = {name: pa.array(rng.choices(values[kind], k=count), kind) for name, kind in kinds.items()}
            sums = []
            for few in (0, 5_000):
                monkeypatch.setattr(committed_rows, "FEW_ROWS", few)
                kept = CommittedRows(table_uri=str, own=[], counts={}, kept_rows=0, _kept={query.table: pa.table(made)})
                sums.append(kept.sums(query))
            assert sums[0] == sums[1], (query, made)


def test_a_few_rows_need_no_duckdb(rng: Random, lakes: Lakes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its start took a twelfth of a small run."""
    monkeypatch.setattr(committed_rows, "FEW_ROWS", 5_000)
    monkeypatch.setattr(committed_rows, "query", None)
    assert lakes.audit(HonestReplay(rng).attempt()).close()
