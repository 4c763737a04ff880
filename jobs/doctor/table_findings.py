"""Judges what a log tells of itself: order, history, retention, files and types. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Final

from jobs.doctor.column_roles import is_usable
from jobs.doctor.finding import Finding, error, note, ok, warning
from jobs.doctor.table_facts import TableFacts
from jobs.durations import UNIT_MS, human_duration
from jobs.lake.log_files import is_whole_uri
from jobs.plain_text import agreeing, counted, first_of
from jobs.reading.published import quote_spark

HORIZON_MS: Final = 30 * UNIT_MS["d"]
"""How far back changes of the log should be seen: the `at_most_age` of `restate` by default."""
SMALL_BYTES: Final = 8 * 2**20
MANY_FILES: Final = 100
_KEPT_MS: Final = {"delta": 30 * UNIT_MS["d"], "iceberg": 5 * UNIT_MS["d"]}
"""How long commits are kept, unless the table has the setting `LogVersion.retention`."""
_FILES: Final = "delta.deletedFileRetentionDuration"
_FILES_MS: Final = 7 * UNIT_MS["d"]
_INTERVAL: Final = re.compile(r"(?:interval\s+)?(\d+)\s+(second|minute|hour|day|week)s?", re.IGNORECASE)
_UNITS: Final = {"second": 1_000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000, "week": 604_800_000}
_COPY: Final = (
    "append the records, in their order, to a new table that has delta.enableRowTracking = true "
    "(docs/reference/logs.md)"
)
_RENAMED: Final = "append the records, in their order, to a new table in which the column has another name"


def table_findings(facts: TableFacts, slice_columns: Sequence[str], *, horizon_ms: int) -> list[Finding]:
    """Return the findings that need no record, in the order in which a person should read them.

    `slice_columns` are those by which the log is to be cut; none if that is by commits.
    """
    return [
        *_contents(facts),
        *(_row_tracking(facts) if facts.log_format == "delta" else _order(facts)),
        *(_of_commits(facts, slice_columns, horizon_ms) if facts.log.has_commits else ()),
        *_files(facts),
        *_types(facts),
    ]


def _of_commits(facts: TableFacts, slice_columns: Sequence[str], horizon_ms: int) -> Iterator[Finding]:
    yield from _removals(facts, slice_columns)
    yield from _rewrites(facts)
    yield from _history(facts)
    yield from _retention(facts, horizon_ms)


def alter(facts: TableFacts, setting: str, value: str) -> str:
    """Return the SQL that sets a table property."""
    return f"ALTER TABLE {sql_name(facts)} SET TBLPROPERTIES ('{setting}' = '{value}')"


def sql_name(facts: TableFacts) -> str:
    """Return the table's name in Spark SQL; that of an Iceberg table is in its catalog."""
    return f"delta.{quote_spark(facts.uri)}" if facts.log_format == "delta" else "…"


def interval_ms(text: str) -> int | None:
    """Return the length of an interval such as `interval 30 days`; None if it has another form."""
    match = _INTERVAL.fullmatch(text.strip())
    return None if match is None else int(match[1]) * _UNITS[match[2].lower()]


def _contents(facts: TableFacts) -> Iterator[Finding]:
    records, files = facts.records, counted(len(facts.files), "file")
    if not facts.files or records == 0:
        yield warning("records", f"{facts.named} has no records ({files})", "append records")
        return
    size = sum(file.bytes for file in facts.files)
    count = "an unknown number of records" if records is None else counted(records, "record")
    yield ok("records", f"{facts.named} has {count} in {files}, {size:,} bytes")
    if records is None:
        yield note("statistics", "some files have no statistics, so plans cannot tell the number of records")


def _order(facts: TableFacts) -> Iterator[Finding]:
    if facts.log.has_commits:
        text = "of appending is that of the snapshots, of their files, and of the rows in a file (order: appended)"
        yield note("order", f"{text}, until a file is rewritten or its snapshot expires", "name columns in log.order")
    else:
        yield note("order", "of appending is not known in a directory of files", "name columns in log.order")


def _row_tracking(facts: TableFacts) -> Iterator[Finding]:
    if any(commit.operation == "CLONE" for commit in facts.commits):
        yield warning(
            "clone",
            "the table is a clone, whose files have no order of appending",
            "replay the original table, or name columns in log.order",
        )
    since = facts.tracked_since
    if not facts.is_tracked:
        yield note(
            "row tracking",
            "is off, so row ids do not tell the order in which records were appended",
            f"name columns in log.order, or {_COPY}",
        )
    elif since == 0:
        yield ok("row tracking", "is on since the table was created: the order of appending is known")
    elif since is not None:
        yield note(
            "row tracking",
            f"was switched on later, by commit {since}. Older files are ordered by the commits that appended them, as "
            "long as these commits are there",
            alter(facts, "delta.logRetentionDuration", "interval 3650 days"),
        )
    else:
        yield note(
            "row tracking",
            f"is on. The commits before {facts.commits[0].version if facts.commits else facts.log.version} were not "
            "read, so it is not known since when",
        )


def _removals(facts: TableFacts, slice_columns: Sequence[str]) -> Iterator[Finding]:
    def is_in_slice(partition: Mapping[str, str | None]) -> bool:
        return all(partition.get(name, "unknown") for name in slice_columns)

    broken = [commit for commit in facts.commits if any(map(is_in_slice, commit.removed))]
    if broken:
        names = first_of([f"{commit.version} ({commit.operation})" for commit in broken], 5)
        yield warning(
            "removed records",
            f"{'commit' if len(broken) == 1 else 'commits'} {names} removed or changed records. Ranges with "
            "their slices are refused until the records are back, or a person accepts that for a pipeline",
            f"RESTORE TABLE {sql_name(facts)} TO VERSION AS OF {broken[0].version - 1}"
            if broken == [facts.commits[-1]] and facts.log_format == "delta"
            else "accept them for a pipeline (hindcast accept-rewrite), or choose ranges without these slices "
            "(docs/reference/logs.md, Records that were removed or changed)",
        )
    else:
        none = "none of a slice" if any(commit.removed for commit in facts.commits) else "none"
        yield ok(
            "removed records",
            f"{none} in the {counted(len(facts.commits), 'commit')} that {agreeing(len(facts.commits), 'were')} read",
        )
    vectors = sum(file.deleted is not None for file in facts.files)
    if vectors:
        yield warning(
            "deletion vectors",
            f"{counted(vectors, 'file')} of the newest version {agreeing(vectors, 'have')} records that are marked as "
            "deleted",
            "see docs/reference/logs.md, Records that were removed or changed",
        )
    if facts.log_format == "delta" and facts.setting("delta.appendOnly") != "true":
        yield note("append only", "nothing prevents DELETE, UPDATE and MERGE", alter(facts, "delta.appendOnly", "true"))


def _rewrites(facts: TableFacts) -> Iterator[Finding]:
    rewritten = sum(file.is_rewritten for file in facts.files)
    if rewritten and not facts.is_tracked:
        yield warning(
            "rewritten files",
            f"{counted(rewritten, 'file')} (such as by OPTIMIZE). Without row tracking, the order of "
            "appending of their records is lost",
            "name columns in log.order that order the records",
        )
    elif rewritten:
        yield note("rewritten files", f"{counted(rewritten, 'file')}. OPTIMIZE keeps row ids while row tracking is on")
    vacuums = [commit for commit in facts.commits if commit.operation.startswith("VACUUM")]
    if vacuums:
        yield note("vacuum", f"ran, last in commit {vacuums[-1].version}: files of older versions are gone")


def _history(facts: TableFacts) -> Iterator[Finding]:
    if facts.first_commit > 0:
        yield note(
            "history", f"the commits before {facts.first_commit} are gone. What they removed or changed cannot be seen"
        )
    if facts.commits_unread:
        yield note(
            "history",
            f"{counted(facts.commits_unread, 'older commit')} can be read and "
            f"{agreeing(facts.commits_unread, 'were')} left out of this look",
        )


def _retention(facts: TableFacts, horizon_ms: int) -> Iterator[Finding]:
    name, is_delta = facts.log.retention, facts.log_format == "delta"
    kept_ms = _setting_ms(facts, name, _KEPT_MS[facts.log_format])
    days = -(-horizon_ms // UNIT_MS["d"])
    if kept_ms is not None and kept_ms < horizon_ms:
        yield warning(
            "log retention",
            f"commits are kept for {human_duration(kept_ms)}, and the horizon is {human_duration(horizon_ms)}. A slice "
            "whose files change is unverified once the commits are gone",
            alter(facts, name, f"interval {days} days" if is_delta else str(days * UNIT_MS["d"])),
        )
    elif kept_ms is None:
        yield note("log retention", f"{name} = {facts.setting(name)} is not understood here")
    else:
        yield ok("log retention", f"commits are kept for {human_duration(kept_ms)}")
    kept_ms = _setting_ms(facts, _FILES, _FILES_MS)
    if is_delta and kept_ms is not None and kept_ms < UNIT_MS["d"]:
        yield warning(
            "file retention",
            f"VACUUM removes files {human_duration(kept_ms)} after they were replaced. A replay that reads them then "
            "fails, and RESTORE is impossible",
            alter(facts, _FILES, "interval 7 days"),
        )


def _setting_ms(facts: TableFacts, name: str, default_ms: int) -> int | None:
    text = facts.setting(name)
    if text is None:
        return default_ms
    return int(text) if facts.log_format == "iceberg" and text.isdigit() else interval_ms(text)


def _files(facts: TableFacts) -> Iterator[Finding]:
    sizes = [file.bytes for file in facts.files]
    if len(sizes) < MANY_FILES or median(sizes) >= SMALL_BYTES:
        return
    text = f"half of the {len(sizes):,} files have less than {median(sizes):,.0f} bytes; reading them is slow"
    mend = f"OPTIMIZE {sql_name(facts)}" if facts.tracked_since == 0 else "append less often, in larger commits"
    yield warning("small files", text, mend)


def _types(facts: TableFacts) -> Iterator[Finding]:
    paths = [file.path for file in facts.files if facts.log.is_read_by_spark and not is_whole_uri(file.path)]
    if any(":" in path.partition("/")[0] for path in paths):
        name = facts.log.partition_columns[0]
        stored = facts.log.physical[name]
        yield error(
            "paths",
            f"the partition column {name!r} has a colon in its name"
            + ("" if stored == name else f" in the files ({stored!r}), also after RENAME COLUMN")
            + ", and Spark takes the paths of its files for URIs with a scheme",
            _RENAMED,
        )
    if facts.log.is_mapped:
        yield note("column mapping", f"the files have other column names ({facts.setting('delta.columnMapping.mode')})")
    for name, before in facts.log.widened.items():
        yield note("types", f"column {name!r} was {before} and is {facts.columns[name]} now")
    for name, kind in facts.columns.items():
        if not is_usable(name):
            yield warning(
                "names",
                f"a pipeline file cannot name the column {name!r}: it has control characters or a wrong length",
                "if the pipeline needs it, "
                + ("rename it (column mapping)" if facts.log_format == "delta" else _RENAMED),
            )
        if kind == "variant":
            yield note(
                "types", f"column {name!r} is a variant: side tables store its JSON, and tasks cannot read it alone"
            )
