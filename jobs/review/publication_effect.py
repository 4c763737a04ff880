"""What the publication of a request does, in the words of the commands and of the report."""

from jobs.ledger.view import LedgerView, Request
from jobs.plain_text import counted
from jobs.planning.request_context import RequestContext
from jobs.publishing.rules import judge_publication


def publication_effect(work: RequestContext, view: LedgerView, request: Request) -> tuple[bool, str]:
    """Return whether a person can publish a request now, and what the publication does, or why it is refused."""
    attempt = judge_publication(work, view, request)
    if not attempt.is_published or attempt.is_seen_already:
        return False, attempt.why
    effect = "promotes the candidate" if request.is_candidate else f"publishes {counted(len(attempt.slices), 'slice')}"
    more = attempt.why.partition("; ")[2]
    return True, f"{effect}{more and f'; {more}'}"
