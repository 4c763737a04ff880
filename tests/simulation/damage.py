"""Damaged files of the simulated tables, as `hindcast verify` finds them, and what `hindcast mend` uses of the lake."""

import pytest

from jobs.ledger.view import LedgerView
from jobs.planning.request_context import RequestContext
from jobs.reading.stored_rows import Finding
from tests.simulation.world import MemoryFiles, World


def patch_mending(world: World, patch: pytest.MonkeyPatch) -> None:
    """Let `mend` read the damage of the world. A state that was removed is not made again by a warm-up."""

    def findings(_work: RequestContext, view: LedgerView, slice_id: str) -> tuple[Finding, ...]:
        world.running().stop_here("verify a slice")
        own = [(path, *world.places[path]) for path in sorted(world.damaged & world.named)]
        return tuple(
            Finding(table=path.partition("/")[0], slice_id=slice_id, attempt_id=attempt, file=path, what="other bytes")
            for path, of_slice, attempt in own
            if of_slice == slice_id and attempt in view.staged_attempts
        )

    mending = "jobs.orchestration.mending"
    patch.setattr(f"{mending}.findings_of", findings)
    patch.setattr(f"{mending}.at_read_log", lambda pipeline, *_lake_and_run, **_stored: pipeline)
    patch.setattr(f"{mending}.restart_of", lambda *_positional, **_named: None)
    patch.setattr(f"{mending}.LakeFiles", lambda **_place: MemoryFiles(world, world.running()))
