"""What can go wrong, by who has to act.

Every message is one paragraph: it names the culprit, shows what was found and what is allowed, and says what to do.
"""


class HindcastError(Exception):
    """Any error that this project raises on purpose. The command line prints it without a traceback."""


class SpecError(HindcastError):
    """The author of a pipeline file, a spec or a suite has to change it."""


class RequestError(HindcastError):
    """The person who asked has to ask for something else: a range that is empty, a slice without a predecessor."""


class RangeError(RequestError):
    """The range is not valid: a bound is no instant or is inside a slice, or the range is empty or reversed."""


class LogError(HindcastError):
    """The owner of the event log has to act: the table is missing, was rewritten, or lost a file."""


class CheckpointError(HindcastError):
    """The operator has to act: a checkpoint does not fit the spec, is damaged, or has another version."""


class StoreError(HindcastError):
    """The operator has to act: a stored file is damaged or lost, or somebody else changed it."""


class LedgerError(HindcastError):
    """The operator has to act: the ledger cannot be read, or somebody else decided first and keeps doing so."""


class AuditError(HindcastError):
    """A law did not close over what was committed. The run is void; run it again, and report it if it happens twice."""


class InvariantBroken(HindcastError):
    """We have to act: this should never happen, and it is a bug in Hindcast."""
