"""The errors of Hindcast. Each class is named after the person who has to act.

Every message is one paragraph. It names the faulty thing, what was found, what is allowed, and what to do.
"""


class HindcastError(Exception):
    """Any error that this project raises on purpose. The command line prints it without a traceback."""


class SpecError(HindcastError):
    """The author of a pipeline file, a spec or a suite has to change it."""


class RequestError(HindcastError):
    """The person who made the request has to change it: its range is empty, or a slice has no predecessor."""


class RangeError(RequestError):
    """The range is not valid: a bound is not an instant or is inside a slice, or the range is empty or reversed."""


class LogError(HindcastError):
    """The owner of the event log has to act: the table is missing, was rewritten, or lost a file."""


class CheckpointError(HindcastError):
    """The operator has to act: a checkpoint does not fit the spec, is damaged, or has another version."""


class StoreError(HindcastError):
    """The operator has to act: a stored file is damaged or lost, or another program changed it."""


class LedgerError(HindcastError):
    """The operator has to act: the ledger cannot be read, or other writers won every attempt to append."""


class AuditError(HindcastError):
    """An attempt is void: an equation of its audit does not hold, or a file that its tasks exchange is damaged.

    A run replays the attempt once by itself. If the second attempt fails as well, the operator has to act.
    """


class InvariantBroken(HindcastError):
    """The developers have to act: this is a bug in Hindcast."""
