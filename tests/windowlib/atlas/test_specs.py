"""Window stages in Atlas's notation: valid ones, refused ones and their messages; records as documents; JSON."""

import copy
import dataclasses
import json
import random
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from tests.windowlib.atlas.playing import COLUMNS, Event, ms, play, stage
from windowlib.atlas.dead_letters import DeadLetterWriter
from windowlib.atlas.documents.documents import Date, compare, sort_key
from windowlib.atlas.documents.json_documents import read_literal, read_text, to_json, to_text
from windowlib.atlas.documents.log_columns import document_of
from windowlib.atlas.documents.places import Place
from windowlib.atlas.policies import ATLAS_PROFILES, AtlasProfile
from windowlib.atlas.spec import AtlasSpec
from windowlib.atlas.window_stages import Hopping, Sessions
from windowlib.bounds import MAX_DURATION_MS
from windowlib.errors import SpecError
from windowlib.records.plain_json import from_json, to_json as to_plain_json
from windowlib.records.records import Pane, Record

if TYPE_CHECKING:
    from windowlib.keyed.operator_protocol import Operator, OperatorSpec
    from windowlib.watermarks.timeline import TimeDriver

SECOND = {"size": 1, "unit": "second"}
DAY = {"size": 1, "unit": "day"}


def parse(found: Any, **options: Any) -> AtlasSpec:  # noqa: ANN401 - JSON
    return AtlasSpec.parse(found, columns=COLUMNS, **options)


@pytest.mark.parametrize(
    ("found", "windows"),
    [
        (
            stage("$tumblingWindow", interval=DAY),
            Hopping(stage="$tumblingWindow", size_ms=86_400_000, hop_ms=86_400_000),
        ),
        (
            stage(
                "$hoppingWindow",
                boundary="eventTime",
                interval={"size": 2, "unit": "hour"},
                hopSize={"size": 90, "unit": "minute"},
                offset={"offsetFromUtc": -3, "unit": "hour"},
                idleTimeout=SECOND,
                allowedLateness=ms(0),
            ),
            Hopping(
                stage="$hoppingWindow",
                size_ms=7_200_000,
                hop_ms=5_400_000,
                offset_ms=0,
                allowed_lateness_ms=0,
                idle_timeout_ms=1_000,
            ),
        ),
        (
            stage("$tumblingWindow", interval=ms(5), boundary="processingTime"),
            Hopping(stage="$tumblingWindow", size_ms=5, hop_ms=5, is_event_time=False, allowed_lateness_ms=0),
        ),
        (
            stage("$sessionWindow", gap=SECOND, partitionBy={"a": "$who", "b": 1}),
            Sessions(gap_ms=1_000, partition_by='{"a": "$who", "b": 1}'),
        ),
    ],
    ids=["tumbling", "hopping", "by the clock", "session"],
)
def test_window(found: dict[str, Any], windows: Any) -> None:  # noqa: ANN401 - Windows
    assert parse(found).windows == windows


TUMBLING = {"interval": SECOND, "pipeline": []}
SESSION = {"gap": SECOND, "partitionBy": "$who", "pipeline": []}

REFUSALS: list[tuple[Any, str]] = [
    ({}, r"windows\.atlas: .* one of \$tumblingWindow, \$hoppingWindow, \$sessionWindow"),
    ([], r"windows\.atlas: found \[\]; allowed is an object"),
    ({"$slidingWindow": {}}, r"\$slidingWindow is not a window stage; allowed are \$tumblingWindow"),
    ({"$tumblingWindow": TUMBLING, "$hoppingWindow": {}}, "one field"),
    ({"$tumblingWindow": 5}, r"\$tumblingWindow: found 5; allowed is an object"),
    ({"$tumblingWindow": {"pipeline": []}}, r"\$tumblingWindow: interval is missing; needed are interval, pipeline"),
    ({"$tumblingWindow": {"interval": SECOND}}, "pipeline is missing"),
    ({"$hoppingWindow": TUMBLING}, "hopSize is missing"),
    ({"$tumblingWindow": {**TUMBLING, "hopSize": SECOND}}, r"\$tumblingWindow\.hopSize: there is no such option"),
    ({"$tumblingWindow": {**TUMBLING, "size": 5}}, r"\.size: there is no such option; allowed are interval, pipeline"),
    ({"$tumblingWindow": {**TUMBLING, "interval": 5}}, r"\.interval: found 5; allowed is an object"),
    ({"$tumblingWindow": {**TUMBLING, "interval": {"size": 1}}}, "unit is missing"),
    (
        {"$tumblingWindow": {**TUMBLING, "interval": {"size": 1, "unit": "week"}}},
        r"\$tumblingWindow\.interval\.unit: found 'week'; allowed is one of ms, second, minute, hour, day",
    ),
    ({"$tumblingWindow": {**TUMBLING, "interval": ms(0)}}, "an integer of at least 1"),
    ({"$tumblingWindow": {**TUMBLING, "interval": {"size": 1.5, "unit": "ms"}}}, "an integer"),
    ({"$tumblingWindow": {**TUMBLING, "interval": ms(MAX_DURATION_MS + 1)}}, "at most 9,999 years"),
    ({"$hoppingWindow": {**TUMBLING, "interval": DAY, "hopSize": ms(1)}}, "at most 10000000 windows"),
    ({"$tumblingWindow": {**TUMBLING, "boundary": "ingestionTime"}}, "one of eventTime, processingTime"),
    (
        {"$tumblingWindow": {**TUMBLING, "boundary": "processingTime", "allowedLateness": SECOND}},
        r"\.allowedLateness: a window with boundary processingTime has no allowedLateness",
    ),
    (
        {"$tumblingWindow": {**TUMBLING, "boundary": "processingTime", "idleTimeout": SECOND}},
        r"\.idleTimeout: a window with boundary processingTime has no idleTimeout",
    ),
    ({"$tumblingWindow": {**TUMBLING, "allowedLateness": ms(-1)}}, "at least 0"),
    (
        {"$tumblingWindow": {**TUMBLING, "offset": {"offsetFromUtc": 1, "unit": "day"}}},
        "one of ms, second, minute, hour",
    ),
    ({"$tumblingWindow": {**TUMBLING, "offset": {"size": 1, "unit": "ms"}}}, "allowed are offsetFromUtc, unit"),
    ({"$sessionWindow": {**SESSION, "idleTimeout": SECOND}}, r"\$sessionWindow\.idleTimeout: there is no such option"),
    ({"$sessionWindow": {**SESSION, "offset": {}}}, r"\.offset: there is no such option"),
    ({"$sessionWindow": {"gap": SECOND, "pipeline": []}}, "partitionBy is missing"),
    ({"$sessionWindow": {**SESSION, "gap": ms(0)}}, "at least 1"),
    ({"$sessionWindow": {**SESSION, "partitionBy": {"$nope": 1}}}, r"\$sessionWindow\.partitionBy\.\$nope"),
    (
        {"$tumblingWindow": {**TUMBLING, "pipeline": [{"$lookup": {}}]}},
        r"\$tumblingWindow\.pipeline\[0\]\.\$lookup: \$lookup is not allowed inside a window",
    ),
    (
        {"$tumblingWindow": {**TUMBLING, "pipeline": [{"$group": {"_id": 1, "n": {"$sum": {"$nope": 1}}}}]}},
        r"\$tumblingWindow\.pipeline\[0\]\.\$group\.n\.\$sum\.\$nope: there is no expression operator \$nope",
    ),
]


@pytest.mark.parametrize(("found", "message"), REFUSALS, ids=[f"{place:02}" for place in range(len(REFUSALS))])
def test_refusal(found: Any, message: str) -> None:  # noqa: ANN401 - JSON
    with pytest.raises(SpecError, match=message):
        parse(found)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"timeField": "$x"}, r"\$source\.timeField: .* in log: event_time"),
        ({"connectionName": "kafka"}, r"\$source\.connectionName: there is no such option; allowed are tsFieldName"),
        ({"tsFieldName": "a.b"}, "without dots"),
        ({"tsFieldName": ""}, "not empty"),
        ({"tsFieldName": "x"}, "the log has a column x"),
        ({"partitionIdleTimeout": ms(0)}, r"\$source\.partitionIdleTimeout\.size: found 0"),
        ({"initialSync": {"enable": True}}, r"\$source\.initialSync"),
    ],
)
def test_refusal_of_a_source(source: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        parse(stage("$tumblingWindow", interval=SECOND), source=source)


def test_a_column_with_the_name_of_the_metadata_is_refused() -> None:
    with pytest.raises(SpecError, match="_stream_meta"):
        AtlasSpec.parse(stage("$tumblingWindow", interval=SECOND), columns={"_stream_meta": "string"})


def test_other_values_that_are_refused() -> None:
    with pytest.raises(SpecError, match="idle_reading must be one of after_end, after_both"):
        AtlasProfile(name="x", idle_reading="later")  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="must not be empty, got"):
        DeadLetterWriter(processor_name="")
    spec = parse(stage("$tumblingWindow", interval=SECOND))
    with pytest.raises(SpecError, match="allowedLateness must be"):
        dataclasses.replace(spec, windows=dataclasses.replace(spec.windows, allowed_lateness_ms=-1))


def test_a_spec_is_comparable_hashable_and_plain() -> None:
    found = stage("$tumblingWindow", interval=SECOND, pipeline=[{"$group": {"_id": "$who", "n": {"$sum": 1}}}])
    spec = parse(found)
    assert spec == parse(json.loads(json.dumps(found)))
    assert hash(spec) == hash(parse(found))
    assert copy.deepcopy(spec) == spec  # Spark sends specs to its workers, so they must be plain data
    assert spec != parse(stage("$tumblingWindow", interval=SECOND))


def test_operator_and_driver_implement_the_protocols() -> None:
    spec: OperatorSpec = parse(stage("$tumblingWindow", interval=SECOND))
    operator: Operator = spec.build()
    driver: TimeDriver = parse(stage("$tumblingWindow", interval=SECOND)).driver()
    assert operator.next_event_timer_ms() is driver.next_deadline_ms() is None


def test_the_profiles_differ_in_name_only() -> None:
    assert set(ATLAS_PROFILES) == {"strict", "mongodb"}
    assert dataclasses.replace(ATLAS_PROFILES["mongodb"], name="strict") == ATLAS_PROFILES["strict"]


# (Spark type, value of the record, value of the document as JSON)
VALUES: list[tuple[str, Any, Any]] = [
    ("bigint", 1 << 40, 1 << 40),
    ("int", None, None),
    ("double", 2, 2.0),
    ("float", 0.5, 0.5),
    ("boolean", True, True),
    ("string", "ä", "ä"),
    ("binary", b"\x01", {"$binary": {"base64": "AQ==", "subType": "00"}}),
    ("decimal(10,2)", Decimal("1.50"), {"$numberDecimal": "1.50"}),
    ("timestamp", 1_356_998_400_123_999, {"$date": "2013-01-01T00:00:00.123Z"}),
    ("timestamp", -1, {"$date": {"$numberLong": "-1"}}),
    ("timestamp_ntz", -1, {"$date": {"$numberLong": "-1"}}),
    ("date", 15_706, {"$date": "2013-01-01T00:00:00Z"}),
    ("array<timestamp>", [0, None], [{"$date": "1970-01-01T00:00:00Z"}, None]),
    ("struct<a:date,b:struct<c:int>>", (1, (2,)), {"a": {"$date": "1970-01-02T00:00:00Z"}, "b": {"c": 2}}),
    ("struct<a:date>", {"a": 1}, {"a": {"$date": "1970-01-02T00:00:00Z"}}),
    ("struct<a:int>", [1], {"a": 1}),
    ("map<string,date>", {"x": 1}, {"x": {"$date": "1970-01-02T00:00:00Z"}}),
    ("map<int,int>", [(1, 2)], {"1": 2}),
]


@pytest.mark.parametrize(("spark_type", "value", "found"), VALUES, ids=[f"{case[0]}-{case[1]}" for case in VALUES])
def test_a_column_becomes_a_field(spark_type: str, value: Any, found: Any) -> None:  # noqa: ANN401 - any value
    convert = document_of([("c", spark_type)])
    document = convert({"c": value})
    assert to_json(document) == {"c": found}
    assert read_text(to_text(document)) == document
    # A checkpoint stores the record's value, which must give the same document after a restore.
    assert convert(from_json(to_plain_json({"c": value}))) == document


def test_a_missing_column_gives_no_field_and_the_event_time_gives_one() -> None:
    spec = parse(stage("$tumblingWindow", interval=ms(10)), source={"tsFieldName": "when"})
    document = play(spec, [Event(at_ms=5, value={"n": None})], flush=True).documents()[0]
    del document["_stream_meta"]
    assert document == {"n": None, "when": {"$date": "1970-01-01T00:00:00.005Z"}}


@pytest.mark.parametrize(
    "value",
    [
        float("inf"),
        float("-inf"),
        1e300,
        3.0,
        Decimal("NaN"),
        Decimal("Infinity"),
        Date(1 << 50),
        [{"a": [b""]}],
        "\u2028",
    ],
    ids=str,
)
def test_json_of_a_value_reads_back(value: Any) -> None:  # noqa: ANN401 - any value
    again = read_text(to_text({"v": value}))["v"]
    assert (type(again), repr(again)) == (type(value), repr(value))


def test_json_of_nan() -> None:
    assert to_text({"v": float("nan")}) == '{"v":{"$numberDouble":"NaN"}}'


def test_the_order_of_types() -> None:
    ordered: list[Any] = [
        None,
        float("nan"),
        -1,
        Decimal("0.5"),
        1,
        "",
        "a",
        {},
        {"a": 1},
        [],
        [0],
        b"",
        b"zz",
        False,
        True,
        Date(0),
    ]
    mixed = random.Random(5).sample(ordered, len(ordered))
    assert repr(sorted(mixed, key=sort_key)) == repr(ordered)
    assert [compare(left, right) for left, right in pairwise(ordered)] == [-1] * 15


def test_literals_of_yaml_are_read() -> None:
    assert read_literal(datetime(2013, 1, 1, tzinfo=UTC), Place("x")) == Date(1_356_998_400_000)
    with pytest.raises(SpecError, match=r"x: found .* allowed is JSON"):
        read_literal(object, Place("x"))


GROUP = {"$group": {"_id": "$who", "n": {"$sum": 1}}}


@pytest.mark.parametrize(
    ("pipeline", "column"),
    [
        ([GROUP], "who"),
        ([GROUP, {"$match": {"n": {"$gt": 1}}}, {"$set": {"m": 1}}], "who"),
        ([GROUP, {"$sort": {"n": 1}}], None),
        ([GROUP, {"$group": {"_id": None}}], None),
        ([{"$match": {}}, GROUP], None),
        ([{"$group": {"_id": "$x"}}], None),
        ([{"$group": {"_id": "who"}}], None),
        ([{"$group": {"_id": "$who.a"}}], None),
        ([{"$group": {"_id": {"$toUpper": "$who"}}}], None),
        ([], None),
    ],
    ids=lambda case: str(case)[:70],
)
def test_the_group_column_of_a_pipeline(pipeline: list[Any], column: str | None) -> None:
    assert parse(stage("$tumblingWindow", interval=SECOND, pipeline=pipeline)).group_column == column


def test_sessions_have_no_group_column() -> None:
    assert parse(stage("$sessionWindow", gap=SECOND, partitionBy="$who", pipeline=[GROUP])).group_column is None


def test_windows_by_key_give_the_same_documents_as_windows_of_all() -> None:
    spec = parse(stage("$hoppingWindow", interval=ms(10), hopSize=ms(4), allowedLateness=ms(0), pipeline=[GROUP]))
    rng = random.Random(20130208)
    log = [Record((), rng.randrange(60), {"who": rng.choice("abc")}, (0, rank), rank) for rank in range(200)]
    found = []
    for by_key in (False, True):
        operator, greatest_ms = spec.build(), -1
        for record in log:
            operator.process(record._replace(key=(record.value["who"],) if by_key else ()))
            greatest_ms = max(greatest_ms, record.timestamp_ms or 0)
            operator.advance_watermark(greatest_ms - 1)
        operator.advance_watermark(1_000)
        outputs = operator.drain()
        found.append((sorted(pane.values for pane in outputs if isinstance(pane, Pane)), len(outputs)))
    assert found[0] == found[1]
    assert len(found[0][0]) > 10


def test_a_long_session_keeps_few_timers() -> None:
    operator = parse(stage("$sessionWindow", gap=SECOND, partitionBy=None)).build()
    for rank in range(5_000):
        operator.process(Record((), rank, {"who": "a"}, (0, rank), rank))
    assert len(operator._open._due) < 2_000
    assert operator.next_event_timer_ms() == 4_999 + 1_000 - 1 + 3_000
    operator.advance_watermark(8_998)
    assert {pane.record_count for pane in operator.drain() if isinstance(pane, Pane)} == {5_000}
