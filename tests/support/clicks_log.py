"""A log of clicks for tests that need records at exact seconds: one user, a pipeline with windows of ten seconds."""

from datetime import date, timedelta

PIPELINE = """
pipeline: clicks
log:
  table: log
  key: [user]
  event_time: {column: at_ms, unit: ms}
  slice: {by: day}
watermark: {kind: ascending}
windows: {tumbling: {size: 10s}}
aggregates: {clicks: {count: {}}}
"""
SCHEMA = "user string, at_ms bigint, day date"
PARTITION = "day"
DAY_MS = 86_400_000


def day_rows(number: int, *seconds: int) -> list[tuple[object, ...]]:
    """Return the records of a day. They happened at these seconds of the day, and they arrived in this order."""
    return [("ann", number * DAY_MS + at * 1000, date(1970, 1, 1) + timedelta(days=number)) for at in seconds]
