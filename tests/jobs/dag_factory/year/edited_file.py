"""The pipeline file of the simulated year, its suite, and the edits of a person."""

import json
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any, Final

from jobs.engine.fingerprints import spec_fingerprint
from jobs.pipeline.models.pipeline import Pipeline
from tests.jobs.dag_factory.year.calendar import YearZone, cron_of
from tests.support.fake_replay import FAILS, sales

SUPERSEDED_DAYS: Final = 5
UNPUBLISHED_DAYS: Final = 2
READY: Final = ("null", "{after: 8h}", "{newer_commit: true}")
PROPOSES, AUTO, OFF = "{mode: propose}", "{mode: auto}", "{mode: off}"
RESTATE: Final = (PROPOSES, AUTO, OFF, "{mode: propose, at_most_age: 3d}")
OTHER_ZONES: Final = ("Asia/Tokyo", "America/Los_Angeles")
LATER_ALERT: Final = 3
"""An edit of the time of the alert makes it so many hours later."""
AGGREGATES: Final = ("{sum: amount}", "{count: {}}")
TEXT: Final = """
pipeline: sales
description: {description}
log:
  table: event_logs/sales
  key: [key]
  event_time: {{column: at_ms, unit: ms}}
  record_id: id
  slice: {{by: day, timezone: {timezone}}}
  ready: {ready}
  order: [id]
watermark: {{kind: ascending}}
windows: {{tumbling: {{size: 1d}}, allowed_lateness: {lateness}}}
aggregates: {{total: {aggregate}}}
quality: {{suite: expectations/sales.json}}
schedule: "{schedule}"
alerts: {{to: [hook], not_published_by: "{alert}"}}
restate: {restate}
retention: {{superseded: {superseded}d, unpublished: {unpublished}d, checkpoints: 40d, schedule: "0 3 * * 1"}}
"""
EDITS: Final = {
    "description": 3, "limit": 3, "aggregate": 2, "lateness": 1, "broken": 4, "ready": 2, "restate": 2,
    "alert_later": 1, "timezone": 1,
}  # fmt: skip
"""What a person edits -> its weight."""


@dataclass(frozen=True)
class Content:
    """The content of the file, and `limit`, from which on the check of its suite fails.

    `timezone` is another time zone than that of the year, or empty. `alert_later` are hours.
    """

    zone: YearZone
    description: str = "sales of a day"
    lateness: str = "0s"
    aggregate: str = AGGREGATES[0]
    limit: int = FAILS
    ready: str = READY[0]
    restate: str = PROPOSES
    alert_later: int = 0
    timezone: str = ""

    @property
    def alert(self) -> str:
        """The time of `not_published_by`."""
        return f"{int(self.zone.alert[:2]) + self.alert_later:02d}{self.zone.alert[2:]}"

    @cached_property
    def text(self) -> str:
        """The text of the file."""
        return TEXT.format(
            description=self.description, timezone=self.timezone or self.zone.name, lateness=self.lateness,
            aggregate=self.aggregate, schedule=cron_of(self.zone.schedule), alert=self.alert, ready=self.ready,
            restate=self.restate, superseded=SUPERSEDED_DAYS, unpublished=UNPUBLISHED_DAYS,
        )  # fmt: skip

    @cached_property
    def pipeline(self) -> Pipeline:
        """The pipeline."""
        return sales(self.text)

    @cached_property
    def spec(self) -> str:
        """The fingerprint of the spec."""
        return spec_fingerprint(self.pipeline)


class EditedFile:
    """The file below `root`. `contents` maps each spec that it has had to its content."""

    def __init__(self, root: Path, content: Content) -> None:
        self.path, self.suite = root / "pipelines" / "sales.yaml", root / "expectations" / "sales.json"
        for place in (self.path, self.suite):
            place.parent.mkdir(parents=True)
        self.content, self.contents = content, {content.spec: content}
        self.is_broken = False
        self.write(content)

    def write(self, content: Content) -> None:
        """Write a content that is valid."""
        self.content, self.is_broken = content, False
        self.contents.setdefault(content.spec, content)
        self.path.write_text(content.text, encoding="utf-8")
        between = {"column": "total", "max_value": content.limit - 1}
        check = {"type": "expect_column_values_to_be_between", "kwargs": between, "severity": "critical"}
        suite = {"window_outputs": {"name": "sales.window_outputs", "expectations": [check]}}
        self.suite.write_text(json.dumps(suite), encoding="utf-8")

    def break_it(self, chance: Random) -> None:
        """Leave the file as an editor or a failed copy leaves it: with a typing error, half of it, empty, or gone."""
        self.is_broken = True
        text = self.content.text
        broken = (text.replace("log:", "lgo:"), text[: len(text) // 2], "", f"{text}aggregates: [", None)
        chosen = chance.choice(broken)
        if chosen is None:
            self.path.unlink()
        else:
            self.path.write_text(chosen, encoding="utf-8")

    def edit(self, name: str, chance: Random) -> None:
        """Edit one thing of the file or its suite."""
        if name == "broken":
            self.break_it(chance)
            return
        now = self.content
        others: dict[str, tuple[Any, ...]] = {
            "description": (f"sales, text {chance.randrange(1_000)}",),
            "limit": (FAILS, 2 * FAILS),
            "aggregate": AGGREGATES,
            "lateness": ("0s", "1h"),
            "ready": READY,
            "restate": RESTATE,
            "alert_later": (0, LATER_ALERT),
            "timezone": OTHER_ZONES if not now.timezone else ("",),
        }
        chosen = chance.choice([value for value in others[name] if value != getattr(now, name)])
        self.write(replace(now, **{name: chosen}))
