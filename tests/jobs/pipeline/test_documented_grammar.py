"""Every YAML block of docs/reference/pipelines.md is a valid part of a pipeline: it is read, compiled and hashed."""

import re
from collections.abc import Iterable

import pytest
import yaml

from jobs.engine.fingerprints import spec_fingerprint
from jobs.engine.window_spec import engine
from jobs.pipeline.files import parse_pipeline
from jobs.pipeline.log_schema import input_columns, validate_against_schema
from jobs.pipeline.models.expressions.vocabulary import DATE_PARTS, FUNCTIONS, TRUNCATED_TO, TYPES
from jobs.pipeline.models.kafka import KafkaGrammar
from jobs.pipeline.models.log import LogGrammar
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.models.process import AGGREGATE_KINDS, ProcessGrammar
from jobs.pipeline.models.ready import MinRecordsGrammar, ReadyGrammar
from jobs.pipeline.models.schedule import ScheduleGrammar
from jobs.pipeline.models.triggers import TriggerGrammar
from jobs.pipeline.models.watermarks import WatermarkGrammar
from jobs.pipeline.models.windows import EvictorGrammar, WindowsGrammar
from tests.support.grammar import COLUMNS
from tests.support.places import ROOT

PAGE = (ROOT / "docs" / "reference" / "pipelines.md").read_text()
BLOCKS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
MESSAGES = {
    "payload": "struct<user:struct<id:string>,ts:bigint>", "topic": "string", "partition": "int", "offset": "bigint",
    "timestamp": "timestamp", "key": "binary", "value": "binary",
}  # fmt: skip
"""Columns of messages, for the blocks with derived columns."""


@pytest.mark.parametrize("place", range(len(BLOCKS)))
def test_each_block_of_the_page_is_valid(place: int) -> None:
    whole = yaml.safe_load(BLOCKS[0]) | yaml.safe_load(BLOCKS[place])
    text = yaml.safe_dump({key: part for key, part in whole.items() if part not in (None, {})}, sort_keys=False)
    pipeline = parse_pipeline(text, source="docs/reference/pipelines.md")
    validate_against_schema(pipeline, {**COLUMNS, **MESSAGES})
    engine(pipeline, input_columns(pipeline, {**COLUMNS, **MESSAGES})).operator.build()
    spec_fingerprint(pipeline)


def test_the_first_block_is_a_whole_pipeline() -> None:
    assert len(BLOCKS) > 25
    assert parse_pipeline(BLOCKS[0], source="docs/reference/pipelines.md").name == "flights"


@pytest.mark.parametrize(
    "model",
    [
        Pipeline,
        LogGrammar,
        KafkaGrammar,
        ReadyGrammar,
        MinRecordsGrammar,
        ScheduleGrammar,
        WatermarkGrammar,
        WindowsGrammar,
        TriggerGrammar,
        EvictorGrammar,
        ProcessGrammar,
    ],
    ids=lambda model: model.__name__,
)
def test_the_page_names_every_key(model: type) -> None:
    fields = model.model_fields  # type: ignore[attr-defined]  # each is a pydantic model
    keys = [field.alias or name for name, field in fields.items()]
    assert [key for key in keys if not re.search(rf"\b{re.escape(key)}\b", PAGE)] == []


def test_the_page_names_every_aggregate() -> None:
    assert [kind for kind in AGGREGATE_KINDS if f"`{kind}" not in PAGE] == []


@pytest.mark.parametrize(
    "words", [FUNCTIONS, DATE_PARTS, TRUNCATED_TO, TYPES.values()], ids=["functions", "parts", "trunc", "types"]
)
def test_the_page_names_the_vocabulary_of_expressions(words: Iterable[str]) -> None:
    assert not [word for word in words if f"`{word}`" not in PAGE]
