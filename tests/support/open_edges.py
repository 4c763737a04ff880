"""The edges of the open windows of an operator, as its snapshot stores them."""

from windowlib.keyed.operator_protocol import Operator
from windowlib.records.records import Tally
from windowlib.records.tallies import NO_EDGES, signed, together


def open_edges(operator: Operator) -> Tally:
    """Return the tally of the edges of all open windows. An orphan has no edges (F1)."""
    edges = NO_EDGES
    for row in operator.snapshot().windows:
        if not row.is_orphan:
            edges = together(edges, (row.edge_count, row.edge_xor, row.edge_sum))
    return Tally(*signed(edges))
