"""The JSON Schema of pipeline files agrees with the models, on every form of the grammar and on every refused file."""

from pathlib import Path
from typing import Any, Final

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

from jobs.pipeline.files import build_pipeline
from jobs.pipeline.json_schema import file_schema
from jobs.pipeline.strict_yaml import parse_yaml
from jobs.project import ROOT
from tests.support.grammar import document, every_form
from windowlib.errors import SpecError

REFUSED: Final = yaml.safe_load((Path(__file__).parent / "refused.yaml").read_text())["read"]
BEYOND: Final = frozenset({
    "missing", "no-bound", "unit", "punctuated-records", "ingestion", "expected-twice", "offset", "slide-offset",
    "dynamic", "count-trigger", "count-lateness", "global-time", "late-clock", "nothing", "no-windows", "type",
    "output", "output-key", "side-output-key", "side-output-name", "no-output", "tag", "state-twice", "window-state",
    "storm-watermark", "storm-trigger", "storm-lag", "storm-semantics", "atlas-aggregates", "atlas-stage", "mongodb",
    "alerts-two-kinds", "alerts-address", "alerts-time", "alerts-no-event",
    "settled-count", "settled-global", "repair-count", "repair-global", "repair-processing", "repair-storm",
    "repair-atlas", "repair-windowless",
    "repair-dynamic", "repair-gap-column", "repair-natural", "atlas-idle-partition", "columns-of-aggregates",
    "atlas-partition", "atlas-unwind", "storm-interval", "column-ticks", "punctuated-ticks", "global-fire",
    "global-report", "global-default-report", "global-silent", "global-end", "global-watermark", "global-any",
    "global-all", "global-each",
})  # fmt: skip
"""Refused for a rule about several keys, or about the text of a value, which the schema does not state."""
LOGS: Final[tuple[dict[str, Any], ...]] = (
    {"pipeline": "hours", "event_time": "window_time", "key": ["k"]},
    {"pipeline": "hours", "table": "late_records", "event_time": "at", "over": "all", "slice": {"every": "1h"}},
    {
        "table": "t",
        "event_time": {"column": "at", "unit": "ms"},
        "key": ["k"],
        "slice": {"by": ["d", "h"], "every": "1h"},
    },
    {"table": "t", "event_time": "at", "key": ["k"], "slice": {"by": "d"}, "ready": {"all": [{"after": "2h"}]}},
    {
        "table": "t",
        "event_time": "at",
        "key": ["k"],
        "slice": {"by": "d"},
        "ready": {"min_records": 5, "timeout": "1h"},
    },
)
WRONG_LOGS: Final[tuple[dict[str, Any], ...]] = (
    {"event_time": "at", "key": ["k"], "slice": {"by": "d"}},
    {"table": "t", "event_time": "at", "key": ["k"]},
    {"table": "t", "event_time": "at", "key": ["k"], "slice": {}},
    {"table": "t", "key": ["k"], "slice": {"by": "d"}},
    {"table": "t", "event_time": "at", "slice": {"by": "d"}},
    {"table": "t", "event_time": "at", "key": ["k"], "over": "all", "slice": {"by": "d"}},
    {
        "table": "t",
        "event_time": "at",
        "key": ["k"],
        "slice": {"by": "d"},
        "ready": {"after": "2h", "marker": "m/{slice_id}"},
    },
    {"pipeline": "Hours", "event_time": "at", "key": ["k"]},
    {"table": "t", "event_time": "at", "key": ["k"], "slice": {"by": "d"}, "order": []},
)


@pytest.fixture(scope="module")
def schema() -> jsonschema.Draft202012Validator:
    made = file_schema()
    jsonschema.Draft202012Validator.check_schema(made)
    return jsonschema.Draft202012Validator(made)


def is_read(whole: dict[str, Any]) -> bool:
    try:
        build_pipeline(whole, source="sample.yaml")
    except SpecError:
        return False
    return True


@pytest.mark.parametrize("name", sorted(every_form()))
def test_every_form_fits(schema: jsonschema.Draft202012Validator, name: str) -> None:
    assert not [*schema.iter_errors(document(**every_form()[name]))]


def test_the_sample_files_fit(schema: jsonschema.Draft202012Validator) -> None:
    for file in sorted((ROOT / "pipelines").glob("*.yaml")):
        assert not [*schema.iter_errors(parse_yaml(file.read_text(), source=str(file)))]


@pytest.mark.parametrize("name", sorted(case["name"] for case in REFUSED))
def test_a_refused_file_does_not_fit(schema: jsonschema.Draft202012Validator, name: str) -> None:
    [case] = [case for case in REFUSED if case["name"] == name]
    assert bool([*schema.iter_errors(document(**case["changes"]))]) == (name not in BEYOND)


@pytest.mark.parametrize("log", [*LOGS, *WRONG_LOGS], ids=str)
def test_the_parts_of_a_log(schema: jsonschema.Draft202012Validator, log: dict[str, Any]) -> None:
    whole = document(log=log)
    assert is_read(whole) == (log in LOGS)
    assert bool([*schema.iter_errors(whole)]) == (log in WRONG_LOGS)
