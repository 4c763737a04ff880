"""`make bench`: runs the contests, keeps the results, and writes the page.

`python -m bench run [--only NAME ..]` measures. `python -m bench page` writes the page again from results.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from bench.contests import Contest, Settings, play
from bench.delta_logs import log_for
from bench.machine import cores, this_machine
from bench.page import pages
from bench.results import merged, result_of
from bench.suite import SIZES, Size, suite
from tests.support.places import ROOT

RESULTS = "benchmarks/results.json"


@click.group()
def bench() -> None:
    """Measure Hindcast beside its peers."""


@bench.command()
@click.option("--size", type=click.Choice(SIZES), default="M", show_default=True, help="S takes minutes, M hours.")
@click.option("--rounds", type=click.IntRange(min=1), default=5, show_default=True)
@click.option("--only", multiple=True, help="Contests whose name contains this text; any number of times.")
@click.option("--without", multiple=True, help="Contestants to leave out; any number of times.")
@click.option("--days", type=click.IntRange(min=31, max=366), default=366, show_default=True, help="Days of flights.")
@click.option(
    "--refuse-load", is_flag=True, help="Stop when other programs use the machine, instead of marking a round."
)
@click.option("--limit", type=click.FloatRange(min=1), default=1_800, show_default=True, help="Seconds for one run.")
@click.option("--cache", type=click.Path(path_type=Path), default=ROOT / ".bench", help="For logs.  [default: .bench]")
@click.option("--docs", type=click.Path(path_type=Path), default=ROOT / "docs", help="For the page.  [default: docs]")
def run(**options: Any) -> None:  # noqa: ANN401 - its options
    """Run contests one after the other; after each of them the page has its figures."""
    chosen = [
        leaving_out(contest, options["without"])
        for contest in suite(options["size"], days=options["days"])
        if not options["only"] or any(text in contest.name for text in options["only"])
    ]
    cache: Path = options["cache"].resolve()
    settings = Settings(
        rounds=options["rounds"],
        cores=cores(),
        cache=cache,
        scratch=cache / "scratch",
        refuses_load=options["refuse_load"],
        limit_s=options["limit"],
    )
    failed = []
    for number, contest in enumerate(chosen, start=1):
        say(f"{number} of {len(chosen)}: {contest.name}")
        played = play(contest, settings, log=log_of(contest, settings))
        failed += [f"{contest.name}: {entry.name}" for entry in played.entries if entry.has_failed]
        found = result_of(played)
        say(summary(found))
        write(options["docs"], found, size=options["size"])
    if failed:
        raise click.ClickException(f"contestants failed: {'; '.join(failed)}")


@bench.command()
@click.option("--docs", type=click.Path(path_type=Path), default=ROOT / "docs", help="Where results and page are.")
def page(docs: Path) -> None:
    """Write the page again from the results."""
    write_pages(docs, json.loads((docs / RESULTS).read_text(encoding="utf-8")))


@bench.command(name="list")
@click.option("--size", type=click.Choice(SIZES), default="M")
def list_contests(size: Size) -> None:
    """List the contests and their contestants."""
    for contest in suite(size):
        say(f"{contest.name:<28} {contest.records:>12,}  {', '.join(contest.contestants)}")


def leaving_out(contest: Contest, names: tuple[str, ...]) -> Contest:
    """Return a contest without some contestants, and without targets beside them; ours, the first, stays."""
    first, *others = contest.contestants
    kept = (first, *(name for name in others if name not in names))
    targets = tuple(target for target in contest.targets if {target.ours, target.peer} <= {"", *kept})
    return replace(contest, contestants=kept, targets=targets)


def log_of(contest: Contest, settings: Settings) -> str:
    """Return the Delta log that a contest reads, and write it if the cache does not have it; empty if it reads none."""
    if contest.source != "log":
        return ""
    return log_for(contest.workload, contest.records, cache=settings.cache, seed=settings.seed)


def write(docs: Path, found: dict[str, Any], *, size: Size) -> None:
    """Add one contest to the results, and write the page."""
    place = docs / RESULTS
    before = json.loads(place.read_text(encoding="utf-8")) if place.is_file() else None
    now = {"machine": this_machine().to_json(), "size": size, "contests": [found]}
    results = merged(before, now)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    write_pages(docs, results)


def write_pages(docs: Path, results: dict[str, Any]) -> None:
    """Write the page and its plots."""
    for name, text in pages(results).items():
        (docs / name).parent.mkdir(parents=True, exist_ok=True)
        (docs / name).write_text(text, encoding="utf-8")


def summary(found: dict[str, Any]) -> str:
    """Return a contest as lines for the terminal."""
    lines = []
    for entry in found["entries"]:
        if entry["missing"]:
            lines.append(f"  {entry['title']:<34} not measured: {entry['missing']}")
            continue
        wall, cpu = entry["wall_s"]["median"], entry["cpu_s"]["median"]
        times = f"{entry['ratios']['wall_s']['median']:8.2f} x" if entry["ratios"] else ""
        lines.append(f"  {entry['title']:<34} {wall:9.3f} s {cpu:9.3f} CPU-s {times}")
    lines += [
        f"  {target['verdict']}: {target['what']}: {target['found'] or 0:.3g} of {target['must']:.3g} {target['unit']}"
        for target in found["targets"]
    ]
    lines += [f"  disturbed: {why}" for why in found["disturbed"]]
    return "\n".join(lines)


def say(text: str) -> None:
    """Write a line to standard output."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    bench()
