"""The Markdown text on the page of a DAG."""

from jobs.dag_factory.addresses import absolute
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import show_instant, slice_at, slice_grid
from jobs.plain_text import escaped, escaped_lines
from jobs.review import links

_AFTER_MS = 1_360_303_200_000  # 2013-02-08 06:00 UTC
_UNTIL_MS = _AFTER_MS + 86_400_000


def dag_page(pipeline: Pipeline, purpose: str) -> str:
    """Return the text of a DAG's page: the pipeline, the purpose of the DAG, pages, log, slices, checks, commands."""
    grammar = pipeline.log.slice
    quality = "no checks" if pipeline.quality is None else f"checks of `{pipeline.quality.suite}`"
    pages = (
        f"[the pipeline]({absolute(links.pipeline_page(pipeline.name))}), "
        f"[all pipelines]({absolute(links.overview())}), "
        f"[search for a record]({absolute(links.record_page(pipeline.name))})"
    )
    columns = "column" if len(grammar.columns) == 1 else "columns"
    by = f"{columns} {', '.join(f'`{escaped(name)}`' for name in grammar.columns)}"
    by = "the times of commits" if grammar.is_by_commits else by
    lines = [
        f"- pages: {pages}",
        f"- log: `{escaped(pipeline.log.table)}`",
        f"- slices: by {by}, time zone {grammar.timezone}",
        f"- {quality}",
        f"- file: `{escaped(pipeline.source)}`",
        f"- command line: `hindcast status {pipeline.name}`, `hindcast report {pipeline.name}`",
    ]
    about = [f"## {pipeline.name}", escaped_lines(pipeline.description or ""), purpose, "\n".join(lines)]
    return "\n\n".join(part for part in about if part)


def backfill_of_airflow(pipeline: Pipeline) -> str:
    """Return what an interval of Airflow's own backfill replays, as Markdown; empty without a cron schedule."""
    if pipeline.schedule is None or pipeline.schedule.cron is None:  # Airflow has no backfill of asset schedules
        return ""
    grid = slice_grid(pipeline)
    slices = "days" if grid.is_daily else "slices"
    first, last = slice_at(grid, _AFTER_MS), slice_at(grid, slice_at(grid, _UNTIL_MS).start_ms - 1)
    example = f"{last.slice_id}, which ends at {show_instant(last.end_ms)}"
    if first != last:
        example = f"{first.slice_id} to {last.slice_id}"
    return (
        "\n\n**Airflow's own backfill** makes one DAG run for each interval of the schedule "
        f"`{pipeline.schedule.cron}`. With `0 6 * * *`, an interval lasts from 06:00 of one day to 06:00 of the next, "
        f"in UTC. A DAG run replays the {slices} that *end* in its interval, its end included: the run of 2013-02-08 "
        f"06:00 to 2013-02-09 06:00 UTC replays {example}. The DAG runs of a backfill share one open request. A DAG "
        "run that ends publishes all that is staged in it, in one commit, if none of it is "
        "held and no other DAG run works on it. Otherwise its slices stay staged, and are published together later. To "
        f"choose slices by their names, or to publish a range as a whole, use `backfill_{pipeline.name}`."
    )
