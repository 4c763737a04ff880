"""What spouts and bolts tell the acker, and what the acker tells spouts.

A *root* is a tuple that a spout sent and wants to hear of again. Every tuple that is derived from it hangs on it by an
*edge*, a random 64-bit id. Sets of edges travel as `Edges`, (count, XOR, sum) of their ids; Storm sends the XOR alone.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from windowlib.records.tallies import NO_EDGES, Edges

RootId = int | str
"""Names a root to acker and spout. Storm takes a random 64-bit integer; any JSON scalar will do."""

NO_TASK: Final = -1
"""The spout of a root whose `Init` has not come yet."""

ACKER_BUCKETS: Final = 3
SPOUT_BUCKETS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Init:
    """From a spout: `task` has sent a root to its targets, by the edges `anchored`, and wants to hear of it."""

    root_id: RootId
    anchored: Edges
    task: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ack:
    """From a bolt: it is done with a tuple that hung on the root by `acked`, and has derived others, by `anchored`."""

    root_id: RootId
    acked: Edges
    anchored: Edges = NO_EDGES


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail:
    """From a bolt: it could not process a tuple of the root's tree."""

    root_id: RootId


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetTimeout:
    """From a bolt: it still works on the root's tree; all who wait for it shall wait anew."""

    root_id: RootId


Message = Init | Ack | Fail | ResetTimeout


class NoticeKind(Enum):
    """What became of a tuple tree; the values are Storm's names."""

    ACK = "ACK"
    FAIL = "FAIL"
    RESET_TIMEOUT = "RESET_TIMEOUT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """From the acker to the spout `task`; `elapsed_ms` is counted from the first that the acker heard of the root."""

    kind: NoticeKind
    root_id: RootId
    task: int
    elapsed_ms: int
