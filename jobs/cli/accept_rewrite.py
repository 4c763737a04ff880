"""The command `hindcast accept-rewrite`."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import click

from jobs.cli import options
from jobs.lake.rewrite_search import FoundRewrites
from jobs.lake.rewrites import Rewrite
from jobs.ledger.acceptances import AcceptedRewrite, by_table
from jobs.ledger.view import LedgerView
from jobs.pipeline.slices import show_instant
from jobs.plain_text import counted
from jobs.planning.request_context import RequestContext
from jobs.publishing.accepting import (
    Acceptance,
    accept_rewrites,
    chosen_rewrites,
    refuse_unreadable,
    rewrites_of,
    told_earlier,
)
from jobs.publishing.staged_changes import requests_with_records
from windowlib.errors import RequestError

UNKNOWN = "unknown"


@click.command(
    "accept-rewrite",
    short_help="Accept a DELETE or UPDATE in old slices of the log, with a reason.",
    epilog='Example: hindcast accept-rewrite clicks --version 17 --reason "erasure request 2026-88"',
)
@click.option("--reason", default=None, help="Why the records stay removed or changed. The ledger stores it.")
@click.option(
    "--version",
    "versions",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="N",
    help="A commit of the log to accept; may be given several times.  [default: all that are not accepted yet]",
)
@click.option("--yes", "is_sure", is_flag=True, help="Accept without a question.")
@click.option("--dry-run", "is_dry", is_flag=True, help="Only show the commits and the slices that they touched.")
@options.json_option
@options.pipeline_options
def accept_rewrite_command(
    *, reason: str | None, versions: tuple[int, ...], is_sure: bool, is_dry: bool, as_json: bool, work: RequestContext
) -> int:
    """Accept commits of the log that removed or changed records, for example because a person has to be forgotten.

    A log that is replayed is append-only, so slices that lost records are refused. After this decision, the slices that
    the commits touched are `input changed`, and a replay reads what is left. All other slices are as before. The
    decision is for this pipeline and for these commits only: a later DELETE is refused again.

    The command prints the commits, and asks on a terminal. Elsewhere it needs --yes. Then run `hindcast plan`.
    """
    view = work.ledger.view()
    rewrites = rewrites_of(work, view)
    chosen = chosen_rewrites(work, view, rewrites, versions=versions)
    if not as_json:
        _show(work, view, rewrites, chosen=chosen)
    done = Acceptance(accepted=(), earlier=())
    if chosen and is_dry:
        try:
            refuse_unreadable(work, rewrites, chosen)
        except RequestError as error:
            options.complain(f"warning: {error}")
    elif chosen:
        if reason is None:
            raise RequestError(
                f"{_named(chosen)}: an acceptance needs a reason (--reason TEXT); the ledger stores it with your name. "
                "Nothing was accepted"
            )
        if not (is_sure or _confirmed(work, chosen, may_ask=not as_json)):
            options.complain("nothing was accepted")
            return options.REFUSED
        done = accept_rewrites(work, rewrites, chosen, reason=reason, who=options.who())
    if as_json:
        options.print_json(_json(work, view, rewrites, chosen=chosen, accepted=done.accepted))
    else:
        _tell(work, done)
    return options.OK


def _named(chosen: Sequence[Rewrite]) -> str:
    return ", ".join(rewrite.named for rewrite in chosen)


def _confirmed(work: RequestContext, chosen: Sequence[Rewrite], *, may_ask: bool) -> bool:
    """Return whether a person confirms the acceptance on a terminal."""
    if not (may_ask and sys.stdin.isatty() and sys.stdout.isatty()):
        chosen_versions = " ".join(f"--version {rewrite.version}" for rewrite in chosen)
        command = f"hindcast accept-rewrite {work.pipeline.name} {chosen_versions} --reason … --yes"
        raise RequestError(
            f"nothing was accepted, because nobody can be asked here. To accept {_named(chosen)}, run: {command}"
        )
    return click.confirm(f"Accept {counted(len(chosen), 'commit')}?", default=False)


def _show(work: RequestContext, view: LedgerView, rewrites: FoundRewrites, *, chosen: Sequence[Rewrite]) -> None:
    if not chosen:
        options.say(
            f"{work.pipeline.name}: nothing to accept. Up to version {rewrites.version} of event log {rewrites.uri}, "
            "no commit that nobody has accepted removed or changed records of a slice",
            *(told_earlier(accepted) for accepted in view.accepted if accepted.table_id == rewrites.table_id),
        )
        return
    options.print_table(
        f"{work.pipeline.name}: commits of event log {rewrites.uri} that removed or changed records",
        ("commit", "time", "operation", "slice", "records before", "after", "readers see it"),
        _rows(view, chosen),
        right=("commit", "records before", "after"),
        whole=("slice",),
    )
    slices = {name for rewrite in chosen for name in rewrite.slices}
    options.say(
        f"If accepted, {counted(len(slices), 'slice')} {'is' if len(slices) == 1 else 'are'} `input changed`, and "
        "slices after them follow if the state before them changes. What readers see does not change before a run is "
        "published.",
        *requests_with_records(view, rewrites, chosen),
    )


def _rows(view: LedgerView, chosen: Sequence[Rewrite]) -> Iterator[tuple[str, ...]]:
    for rewrite in chosen:
        what = f"{rewrite.operation} WHERE {rewrite.predicate}" if rewrite.predicate else rewrite.operation
        head = (str(rewrite.version), "" if rewrite.at_ms is None else show_instant(rewrite.at_ms), what)
        for name, done in rewrite.slices.items():
            yield (*head, name, _count(done.before), _count(done.after), "yes" if name in view.published else "no")
            head = ("", "", "")


def _count(records: int | None) -> str:
    return UNKNOWN if records is None else f"{records:,}"


def _tell(work: RequestContext, done: Acceptance) -> None:
    for entry in done.earlier:
        options.say(told_earlier(entry))
    accepted = done.accepted
    if not accepted:
        return
    names = sorted({name for entry in accepted for name in entry.rewrite.slices})
    options.say(
        f"accepted: {', '.join(entry.rewrite.named for entry in accepted)} for {work.pipeline.name}, "
        f"by {accepted[0].who}: {accepted[0].reason}",
        f"next: hindcast plan {work.pipeline.name} --from {names[0]} --to …",
    )


def _json(
    work: RequestContext,
    view: LedgerView,
    rewrites: FoundRewrites,
    *,
    chosen: Sequence[Rewrite],
    accepted: Sequence[AcceptedRewrite],
) -> dict[str, Any]:
    done, seen = {entry.rewrite.version for entry in accepted}, view.published
    before = by_table(view.accepted).get(rewrites.table_id, {})
    return {
        "pipeline": work.pipeline.name,
        "table_id": rewrites.table_id,
        "log_version": rewrites.version,
        "commits": [
            asdict(rewrite)
            | {"accepted": rewrite.version in done, "published": [name for name in rewrite.slices if name in seen]}
            for rewrite in chosen
        ],
        "accepted_before": sorted(before),
    }
