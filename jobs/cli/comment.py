"""The command `hindcast comment`: the thread of a request."""

import click

from jobs.cli import options
from jobs.planning.request_context import RequestContext
from jobs.publishing.comments import Entry, comment
from jobs.publishing.optimistic_check import By
from windowlib.errors import RequestError


@click.command(
    "comment",
    short_help="Comment on a request, or assign it to a person.",
    epilog='Example: hindcast comment flights --request 5f0c --text "the airline was asked" --assign ines',
)
@click.option(
    "--request", "request_id", required=True, metavar="ID", help="The request, or the first letters of its id."
)
@click.option("--text", default="", help="The comment. The ledger stores it with your name.")
@click.option("--assign", default=None, metavar="NAME", help='Who looks after the request from now on; "": nobody.')
@options.json_option
@options.pipeline_options
def comment_command(*, request_id: str, text: str, assign: str | None, as_json: bool, work: RequestContext) -> int:
    """Write into the thread of a request, which its page shows. A comment changes nothing else.

    The request may be open or not. With --assign, the lists of requests show the name.
    """
    if not text.strip() and assign is None:
        raise RequestError("nothing to write: give --text, --assign, or both")
    pipeline = work.pipeline
    chosen = options.request_of(work, request_id)
    by = By(who=options.who(), decision_id=work.new_id())
    done = comment(work, chosen, by=by, entry=Entry(text=text, assignee=assign))
    facts = {"pipeline": pipeline.name, "request_id": chosen, "who": by.who, "why": done}
    return options.answer(as_json, facts, f"{pipeline.name}: {done}")
