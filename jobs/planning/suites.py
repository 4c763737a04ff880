"""The suites that a pipeline names, and the columns that they may check. Great Expectations is not imported."""

from expectations.loader import check_suite_file, resolve_suite, suite_directory
from expectations.suites import SuiteFile
from jobs.pipeline.models.pipeline import Pipeline
from windowlib.records import tables


def load_checks(pipeline: Pipeline) -> SuiteFile | None:
    """Return the suites of a pipeline, or None if it has no `quality`. Checks their columns against the tables.

    Raises SpecError: the suite file is wrong; names the place, what was found and what is allowed.
    """
    if pipeline.quality is None:
        return None
    suite_file = resolve_suite(pipeline.quality.suite, root=suite_directory(pipeline.functions_dir))
    return check_suite_file(suite_file, columns=checked_columns(pipeline))


def checked_columns(pipeline: Pipeline) -> dict[str, tuple[str, ...]]:
    """Return the stored columns of the tables that a suite of this pipeline may check, without those of `run`."""
    outputs = tables.window_outputs(
        dict.fromkeys(pipeline.log.key_columns, "string"), dict.fromkeys(pipeline.output_columns, "bigint")
    )
    return {table.name: tuple(table.stored_columns()) for table in (outputs, tables.late_records("string"))}
