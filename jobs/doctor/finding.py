"""One finding about a table: a severity, a subject, a sentence, and what mends it."""

from dataclasses import dataclass
from enum import Enum


class Severity(Enum):
    """How much a finding matters. ERROR: a replay is refused, or is wrong."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What was found about one subject. `mend` is a command, SQL or a line of YAML, or advice; empty if none is due."""

    severity: Severity
    subject: str
    text: str
    mend: str = ""


def ok(subject: str, text: str) -> Finding:
    """Return a finding that needs nothing."""
    return Finding(severity=Severity.OK, subject=subject, text=text)


def note(subject: str, text: str, mend: str = "") -> Finding:
    """Return a finding to know."""
    return Finding(severity=Severity.NOTE, subject=subject, text=text, mend=mend)


def warning(subject: str, text: str, mend: str = "") -> Finding:
    """Return a finding that will cause trouble or wrong numbers in some cases."""
    return Finding(severity=Severity.WARNING, subject=subject, text=text, mend=mend)


def error(subject: str, text: str, mend: str = "") -> Finding:
    """Return a finding with which a replay is refused, or is wrong."""
    return Finding(severity=Severity.ERROR, subject=subject, text=text, mend=mend)
