"""The command `hindcast metrics`: the state of all pipelines in the text format of Prometheus."""

from collections.abc import Iterator, Mapping
from typing import Final

import click
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from jobs.cli import options
from jobs.plain_text import escaped
from jobs.planning.change_sentences import told_changes
from jobs.review.metrics import HELP, gauges
from windowlib.errors import HindcastError

PREFIX: Final = "hindcast"
READABLE: Final = "readable"


@click.command(
    "metrics",
    short_help="Print the state of the pipelines for a monitoring system.",
    epilog="Example: hindcast metrics > /var/lib/node_exporter/hindcast.prom",
)
@click.argument("pipeline_name", metavar="[PIPELINE]", required=False)
@options.json_option
@options.existing_place_options
def metrics_command(*, pipeline_name: str | None, as_json: bool, places: options.Places) -> int:
    """Print gauges in the text format of Prometheus: slices, held slices, open requests, age of the newest publication.

    The gauge hindcast_changed_slices compares the log with what the published runs read. It is missing for a pipeline
    whose log cannot be read; the reason is printed to stderr.

    Without PIPELINE, the command prints all pipelines of the pipelines directory. A pipeline whose file or ledger
    cannot be read has the gauge hindcast_readable 0, and the exit status is 1.
    """
    files = places.chosen(pipeline_name)
    by_pipeline: dict[str, dict[str, float]] = {file.name: {READABLE: 0} for file in files.broken}
    status = options.REFUSED if by_pipeline else options.OK
    for pipeline in files.good:
        try:
            work = places.request_context(pipeline)
            view = work.ledger.view()
            changes = told_changes(work, view)
            if changes.slices is None:
                options.complain(f"{pipeline.name}: {' '.join(changes.sentences)}")
            changed = None if changes.slices is None else len(changes.slices)
            by_pipeline[pipeline.name] = {READABLE: 1} | gauges(work, view, changed=changed)
        except HindcastError as error:
            options.complain(f"{pipeline.name}: {error}")
            by_pipeline[pipeline.name] = {READABLE: 0}
            status = options.REFUSED
    if as_json:
        options.print_json(by_pipeline)
    else:
        for line in prometheus_text(by_pipeline).splitlines():
            options.say(line)
    return status


def prometheus_text(by_pipeline: Mapping[str, Mapping[str, float]]) -> str:
    """Return the gauges of pipelines in the text format of Prometheus, one family per gauge."""
    return generate_latest(_Families(by_pipeline)).decode("utf-8")


class _Families(Collector):
    """A collector over fixed gauges."""

    def __init__(self, by_pipeline: Mapping[str, Mapping[str, float]]) -> None:
        self._by_pipeline = by_pipeline

    def collect(self) -> Iterator[Metric]:
        for name, text in {READABLE: "1 if the pipeline's file and ledger can be read, else 0.", **HELP}.items():
            family = GaugeMetricFamily(f"{PREFIX}_{name}", text, labels=["pipeline"])
            for pipeline, own in self._by_pipeline.items():
                if name in own:
                    family.add_metric([escaped(pipeline)], own[name])  # the name of a broken file may be anything
            if family.samples:
                yield family
