"""Fingerprints: which changes of a pipeline file change the id of a run, and which do not."""

from dataclasses import replace

import pytest

from jobs.engine import fingerprints
from jobs.engine.fingerprints import checks_fingerprint, fingerprint, relevant_document, run_id, spec_fingerprint
from jobs.pipeline.files import parse_pipeline, pipeline_document
from jobs.planning.spec_changes import spec_changes
from jobs.runs import Slice
from tests.support.places import ROOT

FLIGHTS = (ROOT / "pipelines" / "flights.yaml").read_text()


def spec(old: str = "", new: str = "") -> str:
    assert old in FLIGHTS
    return spec_fingerprint(parse_pipeline(FLIGHTS.replace(old, new, 1) if old else FLIGHTS, source="p.yaml"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("size: 1h", "size: 2h"),
        ("slide: 15m", "slide: 16m"),
        ("slide: 15m", "slide: 15m, offset: 1m"),
        ("sliding: {size: 1h, slide: 15m}", "tumbling: {size: 1h}"),
        ("sliding: {size: 1h, slide: 15m}", "session: {gap: 1h}"),
        ("allowed_lateness: 30m", "allowed_lateness: 31m"),
        ("out_of_orderness: 6h", "out_of_orderness: 5h"),
        ("kind: bounded, out_of_orderness: 6h", "kind: ascending"),
        ("key: [origin]", "key: [dest]"),
        ("key: [origin]", "over: all"),
        ("event_time: {column: departed_at, unit: ms}", "event_time: {column: departed_at, unit: s}"),
        ("event_time: {column: departed_at, unit: ms}", "event_time: {column: reported_at, unit: ms}"),
        ("arrival_time: {column: reported_at, unit: ms}", "arrival_time: {column: departed_at, unit: ms}"),
        ("record_id: flight_id", "record_id: flight"),
        ("order: commits", "order: [flight_id]"),
        ("every: 1d", "every: 1h"),
        ("timezone: UTC", "timezone: Europe/Berlin"),
        ("{sum: dep_delay}", "{sum: arr_delay}"),
        ("{sum: dep_delay}", "{min: dep_delay}"),
        ("delay_total:", "total_delay:"),
        ("  flights: {count: {}}\n", ""),
        ("owner: operations", "semantics: flink"),
        ("owner: operations", "max_parallelism: 64"),
    ],
)
def test_a_field_that_can_change_a_row_changes_the_fingerprint(old: str, new: str) -> None:
    assert spec(old, new) != spec()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("owner: operations", "owner: somebody"),
        ("owner: operations\n", ""),
        ("owner: operations", "max_parallelism: 128"),
        ("owner: operations", "semantics: strict"),
        ("description: Departures", "description: departures"),
        ('"0 6 * * *"', '"5 6 * * *"'),
        ("fail_on: critical", "fail_on: warning"),
        ("fail_on: critical", "confirm: all"),
        ("quality: {suite: expectations/flights.json, fail_on: critical}\n", ""),
        ("ready: {after: 2h}", "ready: {after: 3h}"),
        ("first: 2013-01-01", "first: 2013-01-02"),
        ("table: event_logs/flights", "table: elsewhere/flights"),
        ("pipeline: flights", "pipeline: copy"),
        ("size: 1h", "size: 60m"),
        ("{after: 2h}", "{after: 120m}"),
        ("slide: 15m", "slide: 900s, offset: 0s"),
        (
            "  delay_total: {sum: dep_delay}\n  delay_mean: {avg: dep_delay}",
            "  delay_mean: {avg: dep_delay}\n  delay_total: {sum: dep_delay}",
        ),
    ],
)
def test_a_field_that_cannot_change_a_row_does_not_change_the_fingerprint(old: str, new: str) -> None:
    assert spec(old, new) == spec()


def test_an_upgrade_keeps_the_fingerprint_of_a_spec_whose_rows_stay() -> None:
    """A new key with a default, for example, would stop all published chains. A version is increased on purpose."""
    assert spec() == "c3e313ab9b4acd5c3acae82bec3cf8c94feed2760436892c9d36b3d942d0a0c6"


def test_the_fingerprint_of_the_checks_has_what_can_change_a_verdict() -> None:
    """`confirm` can only make an error, and a run with an error is checked again in any case."""
    found = {
        text: checks_fingerprint(
            parse_pipeline(FLIGHTS.replace("fail_on: critical", text, 1), source="p.yaml"), {"run": {}}
        )
        for text in ("fail_on: critical", "fail_on: warning", "confirm: none", "confirm: all")
    }
    assert found["confirm: none"] == found["confirm: all"] == found["fail_on: critical"] != found["fail_on: warning"]


def test_every_part_changes_the_run_id() -> None:
    one = Slice(slice_id="2013-02-08", start_ms=0, end_ms=10)
    parts: dict[str, str] = {"spec": "s", "input": "i", "state_before": "b"}
    ids = {
        run_id(pipeline="p", slice_=one, **parts),
        run_id(pipeline="q", slice_=one, **parts),
        run_id(pipeline="p", slice_=replace(one, slice_id="2013-02-09"), **parts),
        run_id(pipeline="p", slice_=replace(one, end_ms=11), **parts),
        *(run_id(pipeline="p", slice_=one, **parts | {name: "x"}) for name in parts),
    }
    assert len(ids) == 7
    assert all(len(one_id) == 32 and set(one_id) <= set("0123456789abcdef") for one_id in ids)
    assert run_id(pipeline="p", slice_=one, spec="ab", input="c", state_before="") != run_id(
        pipeline="p", slice_=one, spec="a", input="bc", state_before=""
    )


def test_a_fingerprint_depends_on_the_content_and_not_on_the_order_of_keys() -> None:
    assert fingerprint({"a": 1, "b": [2]}) == fingerprint({"b": [2], "a": 1})
    assert fingerprint({"a": 1}) != fingerprint({"a": "1"})
    with pytest.raises(ValueError, match="float"):
        fingerprint(float("nan"))


LOG = (
    "pipeline: p\nlog:\n  table: log\n  key: [k]\n  event_time: {column: at, unit: ms}\n  slice: {by: day}\n"
    "  order: [seq]\n"
)
WATERMARK = "watermark: {kind: ascending}\n"
FUNCTION = "process: {function: {name: 'm:f', version: '1'}, output: %s%s}\n"
TUMBLING = LOG + WATERMARK + "windows: {tumbling: {size: 1h}}\n"
ATLAS = (
    LOG.replace("  key: [k]\n", "  over: all\n") + "semantics: mongodb\nwindows:\n  atlas:\n    $tumblingWindow:\n"
    "      interval: {size: 1, unit: day}\n      pipeline: [%s]\n"
)


@pytest.mark.parametrize(
    ("text", "mapping", "place"),
    [
        (TUMBLING + FUNCTION % ("%s", ""), "{low: bigint, high: bigint}", "process.output"),
        (TUMBLING + FUNCTION % ("{n: bigint}", ", side_outputs: {late: %s}"), "{b: bigint, a: bigint}", "side_outputs"),
        (TUMBLING + FUNCTION % ("{n: bigint}", "") + "aggregates: %s\n", "{b: {min: v}, a: {max: v}}", "aggregates"),
        (TUMBLING.replace("1h}", "1h}, evictor: {count: {keep: 2}}") + "aggregates: %s\n", "{b: {min: v}, a: {max: v}}",
         "aggregates"),
        (LOG + "windows: {count: {size: 3, slide: 1}}\naggregates: %s\n", "{b: {min: v}, a: {max: v}}", "aggregates"),
        (ATLAS % "{$sort: %s}, {$limit: 1}", "{v: 1, seq: -1}", "pipeline[0].$sort"),
        (ATLAS % "{$project: {out: %s}}", "{v: $v, seq: $seq}", "pipeline[0].$project.out"),
        (ATLAS.replace("  order:", "  columns: %%s\n  order:") % "{$limit: 1}", "{b: v + 1, a: v + 2}", "log.columns"),
    ],
)  # fmt: skip
def test_the_order_of_keys_is_a_part_of_the_spec_where_it_changes_rows(text: str, mapping: str, place: str) -> None:
    """Keys in alphabetical order have the fingerprint that they had before the order counted."""
    entries = mapping[1:-1].split(", ")
    other = "{" + ", ".join(reversed(entries)) + "}"
    one, two = (parse_pipeline(text % shown, source="p.yaml") for shown in (mapping, other))
    assert spec_fingerprint(one) != spec_fingerprint(two)
    [change] = spec_changes(one, two)
    assert place in change
    assert "keys in the order" in change
    orders = [relevant_document(pipeline_document(pipeline)).get("order", {}) for pipeline in (one, two)]
    assert sorted(map(bool, orders)) == [False, True]


def test_the_order_of_aggregates_without_a_function_is_no_part_of_the_spec() -> None:
    text = TUMBLING + "aggregates: {%s}\n"
    one, two = (
        parse_pipeline(text % shown, source="p.yaml")
        for shown in ("b: {min: v}, a: {max: v}", "a: {max: v}, b: {min: v}")
    )
    assert spec_fingerprint(one) == spec_fingerprint(two)


CLOCKED = (
    LOG.replace("  order:", "  arrival_time: {column: came, unit: ms}\n  order:")
    + WATERMARK
    + "aggregates: {n: {count: {}}}\n"
)
TIMEOUT = CLOCKED + "windows: {tumbling: {size: 1h}, leftovers: report, trigger: {timeout: {after: 1m, trigger: %s}}}\n"
LATE_SESSIONS = CLOCKED + "windows: {session: {gap: 1h}, leftovers: report, trigger: {after_watermark: {%s}}}\n"
EVICTING = CLOCKED + "windows: {tumbling: {size: 1h}, evictor: {%s}}\n"
DOCUMENTS = ATLAS % "{$project: {out: %s}}"


@pytest.mark.parametrize(
    ("version", "text", "counts"),
    [
        ("timeouts_version", TIMEOUT % "{processing_time: {}}", True),
        ("timeouts_version", TIMEOUT % "{purging: {continuous: {every: 5m, time: processing}}}", True),
        ("timeouts_version", TIMEOUT % "{repeatedly: {after_count: 3}}", True),
        ("timeouts_version", TIMEOUT % '{function: {name: "m:f", version: "1"}}', True),
        ("timeouts_version", TIMEOUT % "{continuous: {every: 5m}}", False),
        ("timeouts_version", TIMEOUT % "{purging: {count: 5}}", False),
        ("combiners_version", CLOCKED + "windows: {tumbling: {size: 1h}, timestamp_combiner: latest}\n", True),
        ("combiners_version", CLOCKED + "windows: {tumbling: {size: 1h}}\n", False),
        ("evictors_version", EVICTING % "delta: {column: amount, threshold: 10}", True),
        ("evictors_version", EVICTING % "count: {keep: 2}", False),
        ("session_ends_version", LATE_SESSIONS % "late: {after_count: 3}", True),
        ("session_ends_version", LATE_SESSIONS % "early: {after_count: 3}", False),
        (
            "session_ends_version",
            LATE_SESSIONS.replace("after_watermark", "function") % 'name: "m:f", version: "1"',
            True,
        ),
        ("session_ends_version", CLOCKED + "windows: {session: {gap: 1h}}\n", False),
        ("continuous_version", CLOCKED + "windows: {global: {}, trigger: {continuous: {every: 5m}}}\n", True),
        (
            "continuous_version",
            CLOCKED + "windows: {tumbling: {size: 1h}, trigger: {continuous: {every: 5m}}}\n",
            False,
        ),
        ("timeouts_version", CLOCKED + "windows: {tumbling: {size: 1h}, time: processing}\n", False),
        ("documents_version", DOCUMENTS % "{$dateToString: {date: $at, timezone: Europe/Rome}}", True),
        ("documents_version", DOCUMENTS % "[{$strLenCP: {$toLower: $v}}]", True),
        ("documents_version", DOCUMENTS % "{$dateToString: {date: $at}}", False),
        ("documents_version", DOCUMENTS % "{$literal: {$filter: 1}}", False),
        ("operators_version", DOCUMENTS % "{$add: [$at, 0.5]}", True),
        ("operators_version", ATLAS % "{$match: {a: {$elemMatch: {$gt: 1}}}}", True),
        ("operators_version", ATLAS % "{$unwind: $a.b}", True),
        ("operators_version", ATLAS % "{$unwind: {path: $a.b}}", True),
        ("operators_version", ATLAS % "{$unwind: {path: $a, includeArrayIndex: b.c}}", True),
        ("operators_version", DOCUMENTS % "[{$strLenCP: {$toLower: $v}}]", False),
        ("operators_version", ATLAS % "{$unset: [b, a.b]}", True),
        ("operators_version", ATLAS % "{$set: {a.b: 1}}", True),
        ("operators_version", ATLAS % "{$project: {a: {b: 1}}}", True),
        ("operators_version", ATLAS % "{$project: {a: $b.c, d: {$max: [$b.c, 1.5]}}}, {$unwind: $a}", False),
        ("documents_version", CLOCKED + "windows: {tumbling: {size: 1h}}\n", False),
    ],
)
def test_a_version_of_rules_counts_only_where_they_apply(
    monkeypatch: pytest.MonkeyPatch, version: str, text: str, *, counts: bool
) -> None:
    before = spec_fingerprint(parse_pipeline(text, source="p.yaml"))
    monkeypatch.setitem(fingerprints.VERSIONS, version, fingerprints.VERSIONS[version] + 1)
    assert (spec_fingerprint(parse_pipeline(text, source="p.yaml")) != before) == counts


def test_the_document_of_a_pipeline_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes ten times as long as the rest, and commands ask for the fingerprint of one pipeline again and again."""
    pipeline = parse_pipeline(CLOCKED + "windows: {tumbling: {size: 1h}}\n", source="p.yaml")
    first = spec_fingerprint(pipeline)
    monkeypatch.setattr(fingerprints, "pipeline_document", None)
    assert spec_fingerprint(pipeline) == first
    with pytest.raises(TypeError):
        spec_fingerprint(pipeline.model_copy())
