"""The pipeline file of the simulated year, its suite, and the edits of a person."""

import json
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Final

from jobs.engine.fingerprints import spec_fingerprint
from jobs.pipeline.models.pipeline import Pipeline
from tests.jobs.dag_factory.year.calendar import YearZone, cron_of
from tests.support.fake_replay import FAILS, sales

SUPERSEDED_DAYS: Final = 5
UNPUBLISHED_DAYS: Final = 2
AGGREGATES: Final = ("{sum: amount}", "{count: {}}")
TEXT: Final = """
pipeline: sales
description: {description}
log:
  table: event_logs/sales
  key: [key]
  event_time: {{column: at_ms, unit: ms}}
  record_id: id
  slice: {{by: day, timezone: {zone}}}
  order: [id]
watermark: {{kind: ascending}}
windows: {{tumbling: {{size: 1d}}, allowed_lateness: {lateness}}}
aggregates: {{total: {aggregate}}}
quality: {{suite: expectations/sales.json}}
schedule: "{schedule}"
alerts: {{to: [hook], not_published_by: "{alert}"}}
restate: {{mode: propose}}
retention: {{superseded: {superseded}d, unpublished: {unpublished}d, checkpoints: 40d, schedule: "0 3 * * 1"}}
"""
EDITS: Final = {"description": 3, "limit": 3, "aggregate": 2, "lateness": 1, "broken": 4}
"""What a person edits -> its weight."""


@dataclass(frozen=True)
class Content:
    """The content of the file, and `limit`, from which on the check of its suite fails."""

    zone: YearZone
    description: str = "sales of a day"
    lateness: str = "0s"
    aggregate: str = AGGREGATES[0]
    limit: int = FAILS

    @cached_property
    def text(self) -> str:
        """The text of the file."""
        return TEXT.format(
            description=self.description, zone=self.zone.name, lateness=self.lateness, aggregate=self.aggregate,
            schedule=cron_of(self.zone.schedule), alert=self.zone.alert, superseded=SUPERSEDED_DAYS,
            unpublished=UNPUBLISHED_DAYS,
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
        now = self.content
        match name:
            case "broken":
                self.break_it(chance)
            case "description":
                self.write(replace(now, description=f"sales, text {chance.randrange(1_000)}"))
            case "limit":
                self.write(replace(now, limit=FAILS if now.limit != FAILS else 2 * FAILS))
            case "aggregate":
                self.write(replace(now, aggregate=AGGREGATES[now.aggregate == AGGREGATES[0]]))
            case _:
                self.write(replace(now, lateness="1h" if now.lateness == "0s" else "0s"))
