"""Print the runs of a pipeline's ledger as JSON: `python ledger_runs.py LAKE PIPELINE`. A container can run it, too."""

import json
import sys

from jobs.lake.lake import Lake
from jobs.ledger.ledger import Ledger


def runs(lake: str, pipeline: str) -> list[dict[str, object]]:
    """Return, for each run in slice order, what must not depend on where it ran, and whether it is published."""
    view = Ledger(Lake(root=lake).ledger(pipeline), now_ms=lambda: 0).view()
    found: list[dict[str, object]] = [
        {
            "slice": run.result.slice.slice_id,
            "run": run.result.run_id,
            "digests": dict(sorted(run.result.digests.items())),
            "state_after": run.result.state_after,
            "read": run.result.counts.read,
            "panes": run.result.counts.panes,
            "verdict": run.result.verdict.value,
            "is_published": view.published.get(run.result.slice.slice_id) == run.result.run_id,
        }
        for run in view.runs.values()
    ]
    return sorted(found, key=lambda one: str(one["slice"]))


if __name__ == "__main__":
    print(json.dumps(runs(*sys.argv[1:])))  # noqa: T201 - the result
