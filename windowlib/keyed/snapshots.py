"""The state of an operator as plain rows. docs/reference/checkpoints.md specifies how they are stored."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from windowlib.errors import CheckpointError

if TYPE_CHECKING:  # commands need the version only
    from windowlib.keyed.state import UserStateRow
    from windowlib.keyed.timers import TimerRow
    from windowlib.records.records import Stored

STATE_VERSION: Final = 3
"""The version of the meaning of these rows. A reader refuses any other version."""


@dataclass(slots=True, kw_only=True)
class WindowStateRow:
    """One open window of one key. The bounds of the global window are None.

    `state_window_*` are the bounds of the state window: the first window whose contents a merged session took over.
    `accumulators` has one plain state per aggregate. `contents` has the records if the window keeps them whole. The
    `edge_*` and `fired_*` columns are signed 64-bit integers; `fired_*` covers the edges that a pane has shown.
    `nonspeculative_count` counts the panes that were not EARLY. `last_values` and `last_count` are those of the last
    pane, if a retraction can follow. `is_orphan` marks contents that Flink loses (profile flink, F1).
    """

    key_group: int
    key: Hashable
    window_start_ms: int | None
    window_end_ms: int | None
    state_window_start_ms: int | None
    state_window_end_ms: int | None
    accumulators: tuple[tuple[Any, ...], ...] = ()
    contents: list["Stored"] = field(default_factory=list)
    trigger_state: dict[str, Any] = field(default_factory=dict)
    record_count: int = 0
    edge_count: int = 0
    edge_xor: int = 0
    edge_sum: int = 0
    fired_count: int = 0
    fired_xor: int = 0
    fired_sum: int = 0
    pane_index: int = 0
    nonspeculative_count: int = 0
    last_values: tuple[Any, ...] | None = None
    last_count: int = 0
    is_complete: bool = False
    is_cleanup_silent: bool = False
    is_orphan: bool = False


@dataclass(slots=True, kw_only=True)
class Snapshot:
    """The whole state of an operator, in a fixed order.

    Windows are in the order (key group, key, start, end), timers in firing order.
    """

    watermark_ms: int
    processing_time_ms: int
    stagger_ms: int | None
    windows: list[WindowStateRow] = field(default_factory=list)
    timers: list["TimerRow"] = field(default_factory=list)
    user_state: list["UserStateRow"] = field(default_factory=list)
    version: int = STATE_VERSION

    def check_version(self) -> None:
        """Check that this program can read the snapshot.

        Raises CheckpointError: the snapshot has another state version.
        """
        if self.version != STATE_VERSION:
            raise CheckpointError(
                f"the checkpoint has state version {self.version}, this program reads {STATE_VERSION}; "
                "replay from the start, or use the program that wrote it"
            )
