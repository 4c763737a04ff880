"""The Markdown text on the page of a DAG."""

from jobs.pipeline.models.pipeline import Pipeline
from jobs.plain_text import escaped, escaped_lines


def dag_page(pipeline: Pipeline, purpose: str) -> str:
    """Return the text of a DAG's page: the pipeline, the purpose of the DAG, log, slices, checks, commands."""
    grammar = pipeline.log.slice
    quality = "no checks" if pipeline.quality is None else f"checks of `{pipeline.quality.suite}`"
    lines = [
        f"## {pipeline.name}",
        escaped_lines(pipeline.description or ""),
        purpose,
        f"- log: `{escaped(pipeline.log.table)}`",
        f"- slices: by column `{escaped(grammar.by)}`, time zone {grammar.timezone}",
        f"- {quality}",
        f"- file: `{escaped(pipeline.source)}`",
        f"- command line: `hindcast status {pipeline.name}`, `hindcast report {pipeline.name}`",
    ]
    return "\n\n".join(lines[:3]) + "\n\n" + "\n".join(lines[3:])
