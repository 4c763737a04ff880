"""The suites that a pipeline names: their fingerprint, and the columns that they may check.

Great Expectations is not imported, and what reads suite files only when a pipeline has one.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from jobs.engine.fingerprints import checks_fingerprint
from jobs.pipeline.models.pipeline import Pipeline
from windowlib.records import tables

if TYPE_CHECKING:
    from expectations.suites import SuiteFile
    from jobs.planning.request_context import RequestContext


def load_checks(pipeline: Pipeline) -> "SuiteFile | None":
    """Return the suites of a pipeline, or None if it has no `quality`. Checks their columns against the tables.

    Raises SpecError: the suite file is wrong; names the place, what was found and what is allowed.
    """
    if pipeline.quality is None:
        return None
    from expectations.loader import check_suite_file, resolve_suite, suite_directory

    suite_file = resolve_suite(pipeline.quality.suite, root=suite_directory(pipeline.functions_dir))
    return check_suite_file(suite_file, columns=checked_columns(pipeline))


def checked_columns(pipeline: Pipeline) -> dict[str, tuple[str, ...]]:
    """Return the stored columns of the tables that a suite of this pipeline may check, without those of `run`."""
    outputs = tables.window_outputs(
        dict.fromkeys(pipeline.log.key_columns, "string"), dict.fromkeys(pipeline.output_columns, "bigint")
    )
    return {table.name: tuple(table.stored_columns()) for table in (outputs, tables.late_records("string"))}


def suite_fingerprint(pipeline: Pipeline) -> str:
    """Return the fingerprint of the suites as they are now. A pipeline without `quality` has one, too.

    Raises SpecError: the suite file is wrong.
    """
    suites = load_checks(pipeline)
    return checks_fingerprint(pipeline, None if suites is None else suites.document)


def with_checks(work: "RequestContext") -> "RequestContext":
    """Return the context with the fingerprint of its pipeline's suites; raises as `suite_fingerprint`."""
    return replace(work, checks=suite_fingerprint(work.pipeline))
