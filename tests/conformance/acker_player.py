"""Plays recorded scripts of Storm's acker through `windowlib.storm.acker.acker` in the profile storm.

A script is `{"acker": [["init", id, val, task], ["ack", id, val], ["fail", id], ["reset_timeout", id], ["tick"], …]}`.
The answer is `{"out": [["ACK" | "FAIL" | "RESET_TIMEOUT", id], …]}`. Ids and values are signed 64-bit integers.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from windowlib.errors import SpecError
from windowlib.records.tallies import Edges
from windowlib.storm.acker.acker import STORM, Acker
from windowlib.storm.acker.messages import Ack, Fail, Init, Message, ResetTimeout


def message_of(event: Sequence[Any]) -> Message:
    """Return the message of a script's event.

    Raises:
        SpecError: the event does not exist.
    """
    match event:
        case ["init", root_id, value, task]:
            return Init(root_id=root_id, anchored=_xor_only(value), task=task)
        case ["ack", root_id, value]:
            return Ack(root_id=root_id, acked=_xor_only(value))
        case ["fail", root_id]:
            return Fail(root_id=root_id)
        case ["reset_timeout", root_id]:
            return ResetTimeout(root_id=root_id)
        case _:
            raise SpecError(
                f"script: unknown event {event!r}; there are init (id, val, task), ack (id, val), fail (id), "
                "reset_timeout (id) and tick"
            )


def play(script: Mapping[str, Any]) -> dict[str, Any]:
    """Play one script and return the answer.

    Raises:
        SpecError: an event does not exist.
    """
    acker = Acker(STORM)
    out: list[list[Any]] = []
    for event in script["acker"]:
        if event == ["tick"]:
            acker.tick()
            continue
        notice = acker.receive(message_of(event))
        if notice is not None:
            out.append([notice.kind.value, notice.root_id])
    return {"out": out}


def _xor_only(value: int) -> Edges:
    # Storm's messages contain the XOR of the edges, but not their count or sum.
    return (0, value, 0)
