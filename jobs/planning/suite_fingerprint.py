"""The fingerprint of the suites that judge a pipeline's runs. What reads them is imported with the first call."""

from dataclasses import replace

from jobs.engine.fingerprints import checks_fingerprint
from jobs.pipeline.models.pipeline import Pipeline
from jobs.planning.request_context import RequestContext


def suite_fingerprint(pipeline: Pipeline) -> str:
    """Return the fingerprint of the suites as they are now. A pipeline without `quality` has one, too.

    Raises SpecError: the suite file is wrong.
    """
    from jobs.planning.suites import load_checks

    suites = load_checks(pipeline)
    return checks_fingerprint(pipeline, None if suites is None else suites.document)


def with_checks(work: RequestContext) -> RequestContext:
    """Return the context with the fingerprint of its pipeline's suites; raises as `suite_fingerprint`."""
    return replace(work, checks=suite_fingerprint(work.pipeline))
