"""Every form of the grammar is read, written as JSON, compiled and hashed. Invalid forms are refused by their key."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, get_args

import pytest
import yaml
from pydantic import BaseModel, ValidationError
from pyspark import cloudpickle

from jobs.engine.fingerprints import spec_fingerprint
from jobs.engine.window_spec import engine
from jobs.pipeline.files import pipeline_document, pipeline_from_json, pipeline_to_json
from jobs.pipeline.log_schema import NUMBERS, validate_against_schema
from jobs.pipeline.models.grammar import GrammarModel
from jobs.pipeline.models.pipeline import Pipeline
from tests.support.grammar import COLUMNS, document, every_form, pipeline
from windowlib.errors import SpecError
from windowlib.records.column_types import spell_type
from windowlib.windows.spec import WindowSpec

FORMS = every_form()
FORMS_LOG: Mapping[str, Any] = document()["log"]
_SAME_AS_BASE = {"watermark-bounded", "windows-tumbling"}


@pytest.mark.parametrize("name", FORMS)
def test_every_form_is_equal_after_json_and_builds_its_engine(name: str) -> None:
    one = pipeline(**FORMS[name])
    text = pipeline_to_json(one)
    again = pipeline_from_json(text, source="ledger", functions_dir=one.functions_dir)
    assert pipeline_to_json(again) == text
    validate_against_schema(one, COLUMNS)
    run = engine(one, COLUMNS)
    run.operator.build()
    assert run.time.driver().snapshot()[-1].source == "*"
    assert set(run.layout.read()) <= set(COLUMNS)
    assert tuple(run.outputs) == one.output_columns
    assert run.needs_clock or not one.needs_clock


@pytest.mark.parametrize("name", FORMS)
def test_every_operator_spec_can_be_sent_to_the_workers(name: str) -> None:
    operator = engine(pipeline(**FORMS[name]), COLUMNS).operator
    cloudpickle.loads(cloudpickle.dumps(operator)).build()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("name", [name for name in FORMS if name.startswith("trigger-")])
def test_a_trigger_that_can_lose_records_of_a_window_without_end_may_be_reported(name: str) -> None:
    """The list of such triggers in the grammar has all for which windowlib demands `leftovers: report`."""
    trigger = FORMS[name]["windows"]["trigger"]
    built = engine(pipeline(**FORMS[name]), COLUMNS).operator
    assert isinstance(built, WindowSpec)
    assert built.trigger is not None
    reason = built.trigger.may_lose_data(allowed_lateness_ms=1)
    try:
        pipeline(windows={"global": {}, "trigger": trigger, "leftovers": "report"})
    except SpecError as error:
        assert "a global window never ends" in str(error)  # noqa: PT017
        assert reason is None or "would never fire" in str(error)  # noqa: PT017


def test_every_form_has_a_fingerprint_of_its_own() -> None:
    """Only the forms that are equal to the base have the fingerprint of the base."""
    found: dict[str, str] = {"": spec_fingerprint(pipeline())}
    for name, changes in FORMS.items():
        found[name] = spec_fingerprint(pipeline(**changes))
    assert {name for name in FORMS if found[name] == found[""]} == _SAME_AS_BASE
    others = {name: hashed for name, hashed in found.items() if name and name not in _SAME_AS_BASE}
    twins = [sorted(name for name in others if others[name] == one) for one in set(others.values())]
    assert sorted(tuple(names) for names in twins if len(names) > 1) == [], "two forms have the same fingerprint"


def test_tags_and_alerts_survive_json_and_change_no_row() -> None:
    recipients = [
        "chat",
        {"connection": "mail", "email": ["on-call@example.com"]},
        {"notifier": "package.Notifier", "arguments": {"summary": "{subject}", "tries": 3}},
    ]
    alerts = {"to": recipients, "held": False, "not_published_by": "08:00"}
    one = pipeline(tags=["traffic"], alerts=alerts)
    again = pipeline_from_json(pipeline_to_json(one), source="ledger")
    assert (again.tags, again.alerts) == (one.tags, one.alerts) != (None, None)
    assert spec_fingerprint(one) == spec_fingerprint(pipeline())


SETTLED: Final = {"settled": {"after": "7d", "change_at_most": {"share": 0}}}


def test_the_change_of_an_output_is_limited_exactly_if_it_has_numbers() -> None:
    refused = set()
    others = {"aggregates": {"all": {"collect_list": "dep_delay"}, "first": {"first": "marked_at"}}}
    for changes in (*FORMS.values(), others):
        for output, node in engine(pipeline(**changes), COLUMNS).outputs.items():
            limited = {"settled": {"after": "7d", "change_at_most": {"columns": {output: 0}}}}
            try:
                one = pipeline(**changes | {"publish": limited})
            except SpecError as error:
                assert "publish.settled needs windows" in str(error)  # noqa: PT017
                continue
            kind = spell_type(node).partition("(")[0]
            if kind in NUMBERS:
                validate_against_schema(one, COLUMNS)
                continue
            with pytest.raises(SpecError, match=f"columns: output '{output}' is .*; allowed: .*double"):
                validate_against_schema(one, COLUMNS)
            refused.add(kind.partition("<")[0])
    assert refused >= {"string", "array", "timestamp"}


@pytest.mark.parametrize("kind", ["long", "integer", "short", "byte"])
def test_the_change_of_an_output_is_limited_however_its_type_is_spelled(kind: str) -> None:
    limits = {"publish": {"settled": {"after": "7d", "change_at_most": {"columns": {"n": 0}}}}}
    changes = {"aggregates": None, "process": {"function": "tests.support.functions:longest", "output": {"n": kind}}}
    validate_against_schema(pipeline(**changes | limits), COLUMNS)


@pytest.mark.parametrize(
    "limits", [{"share": 0.01}, {"columns": {"delay": 0.05}}, {"share": 0, "columns": {"delay": 0}}]
)
def test_settled_windows_survive_json_and_change_no_row(limits: dict[str, Any]) -> None:
    one = pipeline(publish={"settled": {"after": "7d", "change_at_most": limits}})
    again = pipeline_from_json(pipeline_to_json(one), source="ledger")
    assert again.publish == one.publish is not None
    assert spec_fingerprint(one) == spec_fingerprint(pipeline())


@pytest.mark.parametrize(
    ("text", "mode", "age_days", "late_days", "budget_h"),
    [
        ("{}", "propose", 30, 30, 2),
        ("{mode: auto, at_most_age: 7d}", "auto", 7, 30, 2),
        ("{daily_budget: 9h, at_most_lateness: 5d}", "propose", 30, 5, 9),
    ],
)
def test_repairs_survive_json_and_change_no_row(
    text: str, mode: str, age_days: int, late_days: int, budget_h: int
) -> None:
    written = pipeline(repair=yaml.safe_load(text))
    found = pipeline_from_json(pipeline_to_json(written), source="ledger").repair
    assert found is not None
    assert (found.mode, found.at_most_age_ms, found.at_most_lateness_ms, found.daily_budget_ms) == (
        mode, age_days * 86_400_000, late_days * 86_400_000, budget_h * 3_600_000
    )  # fmt: skip
    assert spec_fingerprint(written) == spec_fingerprint(pipeline())


UNWIND: Final = [{"$unwind": {"path": "$a", "preserveNullAndEmptyArrays": 1}}]
ATLAS: Final = {
    "$tumblingWindow": {"interval": {"size": 1, "unit": "hour"}, "pipeline": UNWIND},
    "partition": "carrier",
}
SORTED_BY_OPERATOR: Final = {
    "interval": {"size": 1, "unit": "hour"},
    "pipeline": [{"$project": {"b": {"$sortArray": {"input": "$a", "sortBy": {"$literal": -1}}}}}],
}


@pytest.mark.parametrize(
    "part",
    [
        {"repair": {"mode": "off"}},
        {"repair": {"mode": "auto"}},
        {"publish": SETTLED},
        {"windows": {"atlas": ATLAS}, "aggregates": {}},
        {"windows": {"atlas": {"$tumblingWindow": SORTED_BY_OPERATOR}}, "aggregates": {}},
        {"windows": {"storm": {"length": {"ms": 1}, "time": "processing", "watermark_interval": "7s"}}},
        {"watermark": {"kind": "column", "column": "reported_at", "emit": {"every": "5s"}}},
        {"windows": {"global": {}, "leftovers": "fire"}},
    ],
)
def test_a_stored_spec_keeps_what_an_earlier_version_accepted(part: dict[str, Any]) -> None:
    """Keys without effect, as for windows that are never settled, and stages that are refused now.

    Only a file can be corrected, and published rows stay visible.
    """
    stored = json.loads(pipeline_to_json(pipeline(windows={"count": {"size": 3}}, watermark=None)))
    assert pipeline_from_json(json.dumps({**stored, **part}), source="ledger").windows is not None


@pytest.mark.parametrize(
    ("text", "mode", "age_days", "slices"),
    [
        ("{mode: propose}", "propose", 30, 31),
        ("{mode: auto, at_most_age: 7d}", "auto", 7, 31),
        ("{mode: off, at_most_slices: 3}", "off", 30, 3),  # YAML 1.1 reads `off` as false
        ("{mode: 'off'}", "off", 30, 31),
    ],
)
def test_restatements_survive_json_and_change_no_row(text: str, mode: str, age_days: int, slices: int) -> None:
    one = pipeline(restate=yaml.safe_load(text))
    found = pipeline_from_json(pipeline_to_json(one), source="ledger").restate
    assert found == one.restate
    assert found is not None
    assert (found.mode, found.at_most_age_ms, found.at_most_slices) == (mode, age_days * 86_400_000, slices)
    assert spec_fingerprint(one) == spec_fingerprint(pipeline())


@pytest.mark.parametrize(
    "text", ["{}", "{superseded: 90d, unpublished: 30d, checkpoints: 400d, schedule: '5 3 * * 0'}"]
)
def test_a_retention_survives_json_and_changes_no_row(text: str) -> None:
    written = pipeline(retention=yaml.safe_load(text))
    assert pipeline_from_json(pipeline_to_json(written), source="ledger").retention == written.retention is not None
    assert spec_fingerprint(written) == spec_fingerprint(pipeline())


READY: list[dict[str, Any]] = [
    {"after": "2h"},
    {"min_records": 100, "timeout": "12h"},
    {"timeout": "12h", "then": "publish_empty"},
    {"newer_commit": True, "timeout": "1d", "then": "hold"},
    {"producer": "s3://events/raw"},
    {"any": [{"marker": "done/{slice_id}"}, {"all": [{"after": "2h"}, {"min_records": {"share": 0.5, "weeks": 8}}]}]},
]
SCHEDULES: list[Any] = [
    "0 6 * * *",
    ["s3://events/raw", "hindcast://flights/publications"],
    {"asset": "s3://events/raw"},
    {"cron": "0 6 * * *", "asset": "s3://events/raw"},
]


@pytest.mark.parametrize(
    "changes", [*({"log": {"ready": ready}} for ready in READY), *({"schedule": schedule} for schedule in SCHEDULES)]
)
def test_conditions_and_schedules_survive_json_and_change_no_row(changes: dict[str, Any]) -> None:
    log = {**FORMS_LOG, **changes.get("log", {})}
    one = pipeline(**{**changes, "log": log})
    again = pipeline_from_json(pipeline_to_json(one), source="ledger")
    assert (again.log.ready, again.schedule) == (one.log.ready, one.schedule) != (None, None)
    assert pipeline_to_json(again) == pipeline_to_json(one)
    assert spec_fingerprint(one) == spec_fingerprint(pipeline())


def test_a_stored_marker_of_an_earlier_version_is_read() -> None:
    """One marker for all slices is refused in a file. A ledger may have a spec with it, and it stays readable."""
    text = pipeline_to_json(pipeline(log={**FORMS_LOG, "ready": {"marker": "done/{slice_id}"}}))
    old = pipeline_from_json(text.replace("{slice_id}", "_SUCCESS"), source="ledger")
    assert old.log.ready is not None
    assert old.log.ready.marker == "done/_SUCCESS"


def _leaves(part: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:  # noqa: ANN401 - a part of a file
    if isinstance(part, dict) and part:
        return [leaf for key, inside in part.items() for leaf in _leaves(inside, (*path, key))]
    return [path]


def test_every_field_of_the_grammar_is_in_the_document() -> None:
    """The document is what is hashed, so each field that a form sets must be in it."""
    for name, changes in FORMS.items():
        written = yaml.safe_dump(pipeline_document(pipeline(**changes)))
        for key, part in changes.items():
            for path in _leaves(part) if part is not None else ():
                assert all(f"{step}:" in written for step in (key, *path)), f"{name}: {path}"


TUMBLING = {"tumbling": {"size": "1h"}}
REFUSED = yaml.safe_load((Path(__file__).parent / "refused.yaml").read_text())


def refused(when: str) -> pytest.MarkDecorator:
    """The cases that are refused at one stage."""
    cases = REFUSED[when]
    rows = [(case["changes"], case["message"]) for case in cases]
    return pytest.mark.parametrize(("changes", "message"), rows, ids=[case["name"] for case in cases])


@refused("read")
def test_an_invalid_file_is_refused_when_it_is_read(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        pipeline(**changes)
    assert str(caught.value).startswith("sample.yaml: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "users"),
    [
        ({"windows": TUMBLING | {"time": "processing"}}, "windows.time waits"),
        ({"windows": TUMBLING | {"trigger": {"purging": {"processing_time": {}}}}}, "windows.trigger waits"),
        (
            {"windows": TUMBLING | {"trigger": {"any": [{"after_count": 1}, {"after_processing_time": "1m"}]}}},
            "windows.trigger waits",
        ),
        (
            {"windows": TUMBLING | {"trigger": {"continuous": {"every": "1m", "time": "processing"}}}},
            "windows.trigger waits",
        ),
        ({"windows": {"tumbling": {"size": "1h", "stagger": "natural"}}}, "windows.tumbling.stagger waits"),
        ({"watermark": {"kind": "ingestion", "every": "1s"}}, "watermark waits"),
        ({"watermark": {"kind": "ascending", "emit": {"every": "1s"}}}, "watermark waits"),
        (
            {"watermark": {"kind": "ascending", "sources": {"column": "carrier", "idle_timeout": "1m"}}},
            "watermark waits",
        ),
        ({"watermark": None, "windows": {"storm": {"length": "10s"}}}, "windows.storm waits"),
        (
            {"watermark": {"kind": "ingestion", "every": "1s"}, "windows": TUMBLING | {"time": "processing"}},
            "watermark and windows.time wait for",
        ),
    ],
    ids=["windows", "trigger", "composite", "continuous", "stagger", "ingestion", "ticks", "idle", "storm", "two"],
)
def test_a_pipeline_that_needs_the_clock_needs_an_arrival_time(changes: dict[str, Any], users: str) -> None:
    log = pipeline_document(pipeline())["log"]
    assert isinstance(log, dict)
    assert pipeline(**changes).needs_clock
    with pytest.raises(SpecError, match=rf"log\.arrival_time is missing; {re.escape(users)}"):
        pipeline(**changes, log={key: part for key, part in log.items() if key != "arrival_time"})


def test_emission_with_commits_needs_a_log_in_the_order_of_commits() -> None:
    log = pipeline_document(pipeline())["log"]
    assert isinstance(log, dict)
    with pytest.raises(SpecError, match=r"watermark\.emit: commit needs log\.order: commits, .*found \['flight_id'\]"):
        pipeline(watermark={"kind": "ascending", "emit": "commit"}, log=log | {"order": ["flight_id"]})


@refused("schema")
def test_a_column_that_does_not_fit_the_log_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        validate_against_schema(pipeline(**changes), COLUMNS)
    assert message in str(caught.value)


@refused("built")
def test_parts_that_do_not_fit_together_are_refused(changes: dict[str, Any], message: str) -> None:
    one = pipeline(**changes)
    with pytest.raises(SpecError) as caught:
        engine(one, COLUMNS)
    assert message in str(caught.value)
    assert str(caught.value).startswith("sample.yaml: ")


# Models whose fields other tests set (test_files.py, test_fingerprints.py), or which only name a column or a file.
_ELSEWHERE = {
    "LogGrammar", "SliceGrammar", "ReadyGrammar", "TimeColumn", "QualityGrammar", "AggregateGrammar", "AlertsGrammar",
    "Recipient", "PublishGrammar", "SettledGrammar", "ChangeGrammar", "ConditionGrammar", "MinRecordsGrammar",
    "ScheduleGrammar", "RestateGrammar", "RepairGrammar", "RetentionGrammar",
}  # fmt: skip
_OF_THE_FILE = {
    ("Pipeline", name)
    for name in (
        "quality",
        "publish",
        "restate",
        "repair",
        "retention",
        "schedule",
        "owner",
        "description",
        "tags",
        "alerts",
    )
} | {("Pipeline", "max_parallelism")}


def _set_fields(part: object) -> Iterator[tuple[str, str]]:
    """Every (model, field) inside a part whose value differs from the default."""
    match part:
        case BaseModel():
            for name, field in type(part).model_fields.items():
                value = getattr(part, name)
                if value != field.default:
                    yield type(part).__name__, name
                    yield from _set_fields(value)
        case tuple():
            yield from (found for inside in part for found in _set_fields(inside))
        case Mapping():
            yield from (found for inside in part.values() for found in _set_fields(inside))
        case _:
            return


def _fields(annotation: object, seen: set[type[BaseModel]]) -> Iterator[tuple[str, str]]:
    """Every (model, field) of every model inside an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        if annotation not in seen:
            seen.add(annotation)
            for name, field in annotation.model_fields.items():
                yield annotation.__name__, name
                yield from _fields(field.annotation, seen)
        return
    for inside in get_args(annotation):
        yield from _fields(inside, seen)


def _models(model: type[GrammarModel]) -> Iterator[type[GrammarModel]]:
    for below in model.__subclasses__():
        yield from (below, *_models(below))


@pytest.mark.parametrize("value", [None, "", "x", 0, -1, 1.5, True, [], [None], {}, {"x": None}, [[]], "\x1b"])
def test_a_value_of_any_type_in_any_field_is_an_error_that_pydantic_reports(value: object) -> None:
    for model in _models(GrammarModel):
        for name, field in model.model_fields.items():
            with suppress(ValidationError):
                model.model_validate({field.alias or name: value})


def test_the_forms_use_every_field_of_the_grammar() -> None:
    """A new field needs a form, and so is in the tests above, also in the test of fingerprints."""
    used = {found for changes in FORMS.values() for found in _set_fields(pipeline(**changes))}
    every = {found for found in _fields(Pipeline, set()) if found[0] not in _ELSEWHERE}
    assert every - used - _OF_THE_FILE == set()
