"""Keeps the table of a ledger small, for schedules that run for years: its properties, and what a compaction does.

Delta lists `_delta_log` for each commit, so each commit file that stays makes the next commit of the ledger slower, by
about 0.01 ms. A ledger needs its events, which the newest version of the table has, and no older version of the table.
So Delta removes commit files a week after they were written, when it writes a checkpoint. A compaction merges small
data files, and removes those that an earlier compaction has merged.
"""

from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import Final

from jobs.durations import UNIT_MS
from jobs.lake.delta_tables import commit_path, open_delta, removed_paths
from jobs.lake.durable_commits import commit_hooks, durable_commits
from jobs.lake.json_lines import json_lines
from jobs.storage import names_in, read_bytes, remove_file

CONFIGURATION: Final = {
    "delta.appendOnly": "true",
    "delta.logRetentionDuration": "interval 7 days",
    "delta.deletedFileRetentionDuration": "interval 60 days",  # so long the log names merged files
    "delta.dataSkippingStatsColumns": "seq",  # readers skip files by it, and Delta reads all bounds with each commit
}
FORMER: Final = {"delta.logRetentionDuration": "interval 36500 days", "delta.deletedFileRetentionDuration": None}
"""What earlier versions of Hindcast have set. Such a property gets the value of `CONFIGURATION`, any other stays."""
KEEP_MERGED_MS: Final = 7 * UNIT_MS["d"]
"""Merged data files stay so long, for readers that have opened an earlier version of the table."""


MERGED_BYTES: Final = 16 * 2**20
"""Data files are merged up to this size, so that a compaction does not write all events anew."""


def compact(uri: str, *, keep_merged_ms: int = KEEP_MERGED_MS, merged_bytes: int = MERGED_BYTES) -> None:
    """Merge the small data files of a ledger, and remove those that were merged longer ago.

    If another writer commits meanwhile, merge nothing: a later compaction does.
    """
    from deltalake import CommitProperties
    from deltalake.exceptions import CommitFailedError

    table = open_delta(uri)
    try:
        with durable_commits(uri):
            table.optimize.compact(
                target_size=merged_bytes,
                commit_properties=CommitProperties(max_commit_retries=0),
                post_commithook_properties=commit_hooks(uri),
            )
    except CommitFailedError:
        return
    merged = {PurePosixPath(path).name for path in removed_paths(table, older_than_ms=keep_merged_ms)}
    for name in merged.intersection(names_in(uri)):
        remove_file(f"{uri}/{name}")


def operations(uri: str, versions: Iterable[int]) -> Iterator[str | None]:
    """Yield the operation of each commit whose file exists; None if it names none. Delta removes old files."""
    for version in versions:
        try:
            actions = json_lines(read_bytes(commit_path(uri, version)))
        except FileNotFoundError:
            continue
        yield next((action["commitInfo"].get("operation") for action in actions if "commitInfo" in action), None)
