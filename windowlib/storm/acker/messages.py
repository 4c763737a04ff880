"""The messages from spouts and bolts to the acker, and the acker's notices to spouts.

A *root* is a tuple that a spout tracks. Each tuple that is derived from the root has an *edge* to it, a random 64-bit
id. A message has a set of edges as `Edges`: count, XOR and sum of their ids. Storm sends only the XOR.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from windowlib.records.tallies import NO_EDGES, Edges

RootId = int | str
"""The id of a root. Storm uses a random 64-bit integer; here any JSON integer or string is allowed."""

NO_TASK: Final = -1
"""The task of a root whose `Init` has not arrived yet."""

ACKER_BUCKETS: Final = 3
SPOUT_BUCKETS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Init:
    """From a spout: `task` has sent a tracked root to its targets, with the edges `anchored`."""

    root_id: RootId
    anchored: Edges
    task: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ack:
    """From a bolt: it has processed a tuple with the edges `acked`, and derived tuples with the edges `anchored`."""

    root_id: RootId
    acked: Edges
    anchored: Edges = NO_EDGES


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail:
    """From a bolt: it cannot process a tuple of the root's tree."""

    root_id: RootId


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetTimeout:
    """From a bolt: it still processes the root's tree; acker and spout restart their time-outs."""

    root_id: RootId


Message = Init | Ack | Fail | ResetTimeout


class NoticeKind(Enum):
    """The event that a notice reports. The values are Storm's names."""

    ACK = "ACK"
    FAIL = "FAIL"
    RESET_TIMEOUT = "RESET_TIMEOUT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """From the acker to the spout `task`. `elapsed_ms` counts from the first message of the root."""

    kind: NoticeKind
    root_id: RootId
    task: int
    elapsed_ms: int
