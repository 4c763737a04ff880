"""What a person can decide, and the DAG that does it. A module of its own: the DAG processor imports it."""

from enum import Enum

MAX_REASON = 2_000
"""The most characters of a reason."""


class Action(Enum):
    """What a person decides. The values are those of the parameter `action`."""

    PUBLISH = "publish"  # publish a staged request
    WAIVE = "waive"  # let failed slices pass
    WAIVE_AND_PUBLISH = "waive_and_publish"
    CANCEL = "cancel"  # close an open request without publication
    ROLL_BACK = "roll_back"  # take the newest publication back
    RESUME = "resume"  # end the hold after a rollback
    COMMENT = "comment"  # write into the thread of a request; `reason` is the text
    ASSIGN = "assign"  # name the person who looks after a request; without a name: nobody


def decide_dag_id(pipeline: str) -> str:
    """Return the id of the DAG that makes the decisions of persons on a pipeline."""
    return f"decide_{pipeline}"
