"""The DAG `maintain_<name>` of a pipeline with `retention`: reads a share of the stored rows again, and cleans up."""

from datetime import UTC, datetime
from typing import Any

from airflow.sdk import DAG, Context, CronTriggerTimetable
from typing_extensions import override

from jobs.dag_factory.assets import PipelineOperator
from jobs.dag_factory.dag_page import dag_page
from jobs.dag_factory.pipeline_dags import task_defaults
from jobs.dag_factory.settings import DagSettings
from jobs.dag_factory.task_errors import RowsDamaged, leave_verdict, our_errors
from jobs.pipeline.models.pipeline import Pipeline
from jobs.plain_text import counted, escaped

SCRUB, CLEAN = "scrub", "clean"
_START = datetime(2020, 1, 1, tzinfo=UTC)


class ScrubOperator(PipelineOperator):
    """Compares the stored rows of a share of the slices with the ledger, so that each slice is read once a month.

    Each day since the last successful run has its share, so the schedule may be a weekly one. It fails without retry if
    there is a finding, and nothing is cleaned up then.
    """

    @override
    def execute(self, context: Context) -> str:
        from jobs.orchestration import decisions, maintenance

        with our_errors(context):
            before = context.get("prev_start_date_success")
            since_ms = int(before.timestamp() * 1000) if before else None
            report = maintenance.scrub(self.pipeline_file, lake=decisions.lake_of(self.lake), since_ms=since_ms)
        for finding in report.findings:
            self.log.error("%s", escaped(finding))
        if report.findings:
            damaged = RowsDamaged(report, maintenance.what_to_do(report))
            leave_verdict(context, str(damaged))
            raise damaged
        done = f"{counted(report.rows, 'row')} of {counted(report.runs, 'run')}: {report.verdict}"
        self.log.info("%s", done)
        return done


class CleanOperator(PipelineOperator):
    """Removes the rows past their retention, and the files that nothing needs any more, as `hindcast clean` does."""

    @override
    def execute(self, context: Context) -> dict[str, Any]:
        from jobs.orchestration import decisions, maintenance

        with our_errors(context):
            run = context["dag_run"]
            leftovers = maintenance.clean_up(
                self.pipeline_file, lake=decisions.lake_of(self.lake), who=f"{run.dag_id}, run {run.run_id}"
            )
        for rows in leftovers.rows:
            self.log.info("removed rows of %s, %s attempts: %s", rows.table, f"{rows.attempts:,}", rows.why.value)
        removed = {**leftovers.to_json(), "files": len(leftovers.files)}
        self.log.info("removed %s files, and %s of rows removed before", removed["files"], removed["expired_files"])
        return removed


def maintain_dag(pipeline: Pipeline, settings: DagSettings) -> DAG | None:
    """Return the DAG that keeps the lake of a pipeline in order; None if its file has no `retention`."""
    if pipeline.retention is None:
        return None
    purpose = "Compares a share of the stored rows with the ledger, and removes what is past the retention."
    with DAG(
        dag_id=f"maintain_{pipeline.name}",
        description=f"Read stored rows of {pipeline.name} again, and remove what is past its retention",
        doc_md=dag_page(pipeline, purpose),
        schedule=CronTriggerTimetable(pipeline.retention.schedule, timezone="UTC"),
        start_date=_START,
        catchup=False,
        is_paused_upon_creation=False,  # else the lake grows, and nobody notices
        max_active_runs=1,
        default_args=task_defaults(pipeline, settings),
        tags=[*settings.tags, *(pipeline.tags or ()), "maintain"],
    ) as dag:
        read = ScrubOperator(task_id=SCRUB, pipeline=pipeline, lake=settings.lake)
        _ = read >> CleanOperator(task_id=CLEAN, pipeline=pipeline, lake=settings.lake)
    return dag
