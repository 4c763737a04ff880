"""The ids of (record, window) pairs, which are part of the checkpoint format."""

from windowlib.records.tallies import edge_id


def test_edge_ids_never_change() -> None:
    assert [edge_id(7, index) for index in range(3)] == [7, edge_id(7, 1), edge_id(7, 2)]
    assert edge_id(0, 1) == -2152535657050944081  # the first output of splitmix64 from seed 0
    assert edge_id(-(2**63), 0) == -(2**63)
    assert len({edge_id(identity, index) for identity in range(100) for index in range(100)}) == 10_000
