"""One finding about a table: a severity, a subject, a sentence, and what mends it."""

from dataclasses import dataclass
from enum import Enum
from functools import partial


class Severity(Enum):
    """How much a finding matters. ERROR: a replay is refused, or is wrong."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found about one subject. `mend` is a command, SQL or a line of YAML, or advice; empty if none is due."""

    severity: Severity
    subject: str
    text: str
    mend: str = ""


ok = partial(Finding, Severity.OK)
"""(subject, text): a finding that needs nothing."""
note = partial(Finding, Severity.NOTE)
"""(subject, text, mend): a finding to know."""
warning = partial(Finding, Severity.WARNING)
"""(subject, text, mend): a finding that will cause trouble or wrong numbers in some cases."""
error = partial(Finding, Severity.ERROR)
"""(subject, text, mend): a finding with which a replay is refused, or is wrong."""
