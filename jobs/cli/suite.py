"""The commands `hindcast suite propose` and `hindcast suite try`."""

from collections.abc import Callable, Mapping
from pathlib import Path

import click

from expectations.formatting import percent, spell
from expectations.loader import check_suite_file
from expectations.suites import SEVERITIES
from jobs.cli import options
from jobs.cli.slice_lines import all_option
from jobs.engine.fingerprints import checks_fingerprint
from jobs.folding import fold, span, spans
from jobs.new_file import write_new
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import parse_bound
from jobs.plain_text import counted
from jobs.planning.published_spec import on_published_spec
from jobs.planning.request_context import RequestContext
from jobs.planning.suites import checked_columns, load_checks
from jobs.reading.verify import Span
from jobs.review.suites.history import PastTables, good_history, whole_history
from jobs.review.suites.proposing import RUNS_NEEDED, Proposal, propose
from jobs.review.suites.ranges import Rule
from jobs.review.suites.trying import Present, Trial, TriedCheck, TriedSlice, try_suite
from jobs.runs import VERDICTS, Verdict

_OPTIONAL_FROM = click.option(
    "--from", "from_text", default=None, metavar="DATE", help="Start of the history.  [default: the first slice]"
)
_OPTIONAL_TO = click.option(
    "--to", "to_text", default=None, metavar="DATE", help="End of the history, not included.  [default: the last slice]"
)


@click.group(
    "suite",
    short_help="Propose checks from history, or try a suite on it.",
    epilog="Example: hindcast suite propose flights --output expectations/flights-proposed.json",
)
def suite_command() -> None:
    """Suites of checks: propose one from the published runs, or try one on all past slices before it gates anything.

    docs/how-to/quality.md describes suites, severities and waivers.
    """


@suite_command.command(
    "propose",
    short_help="Write a first suite, made from the published runs.",
    epilog="Example: hindcast suite propose flights --output expectations/new.json",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    help="The file to write; an existing file is not overwritten.  [default: standard output]",
)
@_OPTIONAL_FROM
@_OPTIONAL_TO
@click.option(
    "--margin",
    type=click.FloatRange(min=0),
    default=Rule().margin,
    show_default=True,
    help="How far a range is widened on each side, relative to the distance of its quantiles. 0 is the narrowest.",
)
@click.option(
    "--runs-needed",
    type=click.IntRange(min=1),
    default=RUNS_NEEDED,
    show_default=True,
    help="With fewer published runs, the proposal says that its history is too short.",
)
@options.pipeline_options
def propose_command(
    *, output: Path | None, from_text: str | None, to_text: str | None, margin: float, runs_needed: int,
    work: RequestContext,
) -> int:  # fmt: skip
    """Write a first suite of checks, made from the published runs of PIPELINE. Reads rows; starts no Spark.

    The suite passes on all these runs. Each check has the history that justifies it in its `meta`: the number of runs,
    the least, median and greatest value, and their slices. Runs that fail, or that a person had to waive, are left out.
    Ranges have the severity warning, and checks of structure, such as keys that are never null, the severity critical.
    Review the file, and try it with `hindcast suite try`.
    """
    pipeline = work.pipeline
    work, _ = on_published_spec(work)
    view = work.ledger.view()
    history = good_history(pipeline.name, view, _span(pipeline, from_text, to_text))
    past = PastTables(lake=work.lake, view=view, history=history)
    proposal = propose(work.pipeline, past, rule=Rule(margin=margin), runs_needed=runs_needed)
    if output is None:
        options.print_json(proposal.document, indent=2)
    else:
        write_new(output, proposal.text)
        options.say(f"{counted(proposal.checks, 'check')} from {_of(history.slice_ids)}, written to {output}")
        options.say(f"Next: `hindcast suite try {output} {pipeline.name}` prints what it would have said of the past.")
    _warn(proposal, history.left_out)
    return options.OK


def _warn(proposal: Proposal, left_out: Mapping[str, tuple[str, ...]]) -> None:
    for reason, names in left_out.items():
        options.complain(f"left out: {_of(names)}: {reason}")
    for check in proposal.not_proposed:
        options.complain(f"not proposed, because of the types of the columns: {check}")
    if not proposal.has_enough:
        options.complain(
            f"warning: too little history for ranges: {counted(proposal.runs, 'run')}. A proposal needs "
            f"{proposal.runs_needed} published runs (--runs-needed). Widen the ranges before they stop publication"
        )


@suite_command.command(
    "try",
    short_help="Print what a suite would have said of past slices.",
    epilog="Example: hindcast suite try expectations/new.json flights --from 2013-02-01",
)
@click.argument("suite_file", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@_OPTIONAL_FROM
@_OPTIONAL_TO
@click.option(
    "--fail-on",
    type=click.Choice(SEVERITIES),
    default=None,
    help="The least severity that stops publication.  [default: that of the pipeline file, else critical]",
)
@all_option
@options.json_option
@options.pipeline_options
def try_command(
    *, suite_file: Path, from_text: str | None, to_text: str | None, fail_on: str | None,
    fold_from: int, as_json: bool, work: RequestContext,
) -> int:  # fmt: skip
    """Print what the suite in FILE would have said of past slices of PIPELINE. Writes nothing; starts no Spark.

    The newest run of each slice is tried, published or held. Slices of another spec than that of the newest run are
    not tried, and it names them. The column `now` has the verdict of the suite that the pipeline file names. The exit
    status is 0 also if checks fail.
    """
    pipeline = work.pipeline
    candidate = check_suite_file(suite_file, columns=checked_columns(pipeline))
    view = work.ledger.view()
    history = whole_history(pipeline.name, view, _span(pipeline, from_text, to_text))
    past = PastTables(lake=work.lake, view=view, history=history)
    suites = load_checks(pipeline)
    present = Present(
        suites=suites,
        fingerprint=checks_fingerprint(pipeline, None if suites is None else suites.document),
        fail_on=pipeline.quality.fail_on if pipeline.quality else "critical",
    )
    trial = try_suite(candidate, present, past, fail_on=fail_on or present.fail_on)
    if as_json:
        options.print_json(trial.to_json())
    else:
        _show(trial, at_least=fold_from)
    return options.OK


def _span(pipeline: Pipeline, from_text: str | None, to_text: str | None) -> Span:
    bounds = [None if text is None else parse_bound(pipeline, text) for text in (from_text, to_text)]
    return Span(from_ms=bounds[0], to_ms=bounds[1])


def _of(names: tuple[str, ...]) -> str:
    return f"{counted(len(names), 'slice')} {spans([names])}" if names else "no slice"


def _show(trial: Trial, *, at_least: int) -> None:
    verdicts = {verdict: sum(tried.verdict is verdict for tried in trial.slices) for verdict in VERDICTS}
    words = ", ".join(f"{count:,} {verdict.value}" for verdict, count in verdicts.items() if count) or "no past slice"
    stretches = fold(
        trial.slices, lambda tried: (tried.verdict, tried.was, tried.is_waived, tried.failed), at_least=at_least
    )
    rows = [
        (
            span([tried.slice_id for tried in stretch.items]),
            options.verdict_text(first.verdict),
            options.verdict_text(first.was, is_waived=first.is_waived and first.was is Verdict.FAIL),
            "; ".join(first.failed),
        )
        for stretch in stretches
        for first in (stretch.first,)
    ]
    title = f"{trial.pipeline}: {trial.suite} would have said of {counted(len(trial.slices), 'slice')}: {words}"
    options.print_table(title, ("slice", "verdict", "now", "checks that did not pass"), rows, whole=("slice",))
    options.say("")
    checks = sorted(trial.checks, key=lambda check: -(check.failed + check.errors))
    options.print_table(
        "Checks, those that failed most often first:",
        ("failed", "severity", "first", "last", "check", "found"),
        [_check_row(check) for check in checks],
        right=("failed",),
        whole=("severity", "first", "last"),
    )
    options.say("", _changes(trial))
    for reason, names in trial.left_out.items():
        options.say(f"not tried: {_of(names)}: {reason}")


def _check_row(check: TriedCheck) -> tuple[str, ...]:
    failed = f"{check.failed + check.errors:,} of {check.slices:,}"
    return failed, check.severity, check.first or "", check.last or "", check.demand, _found(check)


def _found(check: TriedCheck) -> str:
    """Return the range of what a check found; empty if it found no number."""
    ends = [value for value in (check.low, check.high) if value is not None]
    if not check.is_share:
        return " to ".join(dict.fromkeys(spell(value, check.column) for value in ends))
    return f"{' to '.join(dict.fromkeys(map(percent, ends)))} of the rows unexpected" if any(ends) else ""


def _changes(trial: Trial) -> str:
    """Return in a sentence which slices the suite would judge differently."""
    if not trial.changes:
        return "No verdict would change."
    stops: Callable[[Verdict], bool] = lambda verdict: verdict in {Verdict.FAIL, Verdict.ERROR}  # noqa: E731
    held = [tried for tried in trial.changes if stops(tried.verdict) and not stops(tried.was)]
    free = [tried for tried in trial.changes if stops(tried.was) and not stops(tried.verdict)]
    parts = [f"{counted(len(trial.changes), 'slice')} would have another verdict"]
    parts += [f"{what}: {_named(slices)}" for what, slices in (("held", held), ("no longer held", free)) if slices]
    return "; ".join(parts) + "."


def _named(slices: list[TriedSlice]) -> str:
    return spans([[tried.slice_id] for tried in slices])
