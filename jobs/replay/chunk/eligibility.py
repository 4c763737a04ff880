"""Why tasks exchange single records."""

from jobs.engine.engine import Engine
from jobs.replay.chunk.time_steps import needs_pass
from windowlib.kernels.coverage import why_not_combined


def why_not_partials(engine: Engine) -> str | None:
    """Return why tasks exchange single records, as one sentence; None if they combine them first."""
    if needs_pass(engine):
        return "the watermark depends on more than the greatest event time so far"
    return why_not_combined(engine.operator, engine.layout)
