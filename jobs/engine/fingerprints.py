"""Fingerprints of all that determines a run. Runs with equal fingerprints have equal rows (law L1).

A fingerprint is the lower-case hex of the SHA-256 of canonical JSON (sorted keys, no spaces, UTF-8).
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from typing_extensions import override

from jobs.engine.user_functions import Functions
from jobs.pipeline.files import pipeline_document
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.models.windows import WindowsGrammar
from jobs.runs import Slice
from windowlib.keyed.snapshots import STATE_VERSION
from windowlib.records.row_ids import NO_ROWS
from windowlib.records.tables import CHECKPOINT_TABLES

# Increase it when windowlib computes other rows for a spec than before: every slice then gets a new run.
SEMANTICS_VERSION = 2

# The same for pipelines with users' functions only. 1: functions shared values with other windows, keys and states, and
# Arrow converted values to the type of a column in silence. 2: a firing without a result left the pane before it, and a
# state of a trigger could have the name of one of Hindcast's.
FUNCTIONS_VERSION = 3

_WITHOUT_TIMEOUT_RULES = {
    "event_time", "continuous", "count", "delta", "purging", "timeout", "never", "end_of_stream"
}  # fmt: skip
_DOCUMENT_RULES = {
    "$dateDiff": "timezone", "$dateToString": "timezone", "$dateFromString": "timezone",
    "$filter": "limit", "$zip": "defaults",
    "$toLower": None, "$toUpper": None, "$strcasecmp": None,
    "$substr": None, "$substrCP": None, "$substrBytes": None,
}  # fmt: skip
_OPERATOR_RULES = dict.fromkeys((
    "$add", "$subtract", "$toString", "$toDecimal", "$convert", "$setUnion", "$setIntersection", "$setDifference",
    "$elemMatch",
))  # fmt: skip
_STAGES_WITH_PATHS = ("$project", "$addFields", "$set", "$unset", "$unwind")

RUN_ID_DIGITS = 32
_KEPT: Final = 64
_CANONICAL: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)

# These fields cannot change a row of a run. `table`, `format`, `partitions`, `changes`, `pipeline`, `panes` and `ready`
# decide where, how and when records are read; the input fingerprint covers the records. `first` and `last` bound the
# slices; the state before covers the start of a chain, and the input the slices before that `distinct` reads.
_IRRELEVANT = (
    "pipeline", "quality", "publish", "restate", "repair", "retention", "schedule", "owner", "description", "tags",
    "alerts",
)  # fmt: skip
_IRRELEVANT_OF_LOG = ("table", "format", "partitions", "changes", "history", "pipeline", "panes", "ready")
_IRRELEVANT_OF_SLICE = ("first", "last")


def fingerprint(value: object) -> str:
    """Return the fingerprint of plain data. Raises TypeError, ValueError: the value is not JSON, or holds NaN."""
    return hashlib.sha256(_CANONICAL.encode(value).encode("utf-8", errors="surrogatepass")).hexdigest()


def spec_fingerprint(pipeline: Pipeline) -> str:
    """Return the fingerprint of all fields that can change a row, the profile, and the versions of semantics and state.

    A default is equal to the same value written out. Units (`60m` is `1h`) do not matter, and the order of keys only
    where it can change a row (`key_orders`). A user's function contributes its source, or the `version` that the
    pipeline file gives it, and a pipeline with one the version of the rules for functions.
    Raises SpecError: the module of a function does not exist or cannot be read.
    """
    kept = _kept_fingerprint(_ByIdentity(pipeline), (SEMANTICS_VERSION, STATE_VERSION, *VERSIONS.values()))
    if kept is not None:
        return kept
    code = Functions(source=pipeline.source, directory=pipeline.functions_dir)
    functions = {function.name: code.source_of(function, function.name) for function in pipeline.functions()}
    return fingerprint(_declaration(pipeline) | {"functions_version": FUNCTIONS_VERSION, "functions": functions})


class _ByIdentity:
    """A pipeline as the key of a cache. It does not change, and to compare it with an equal one would take as long."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByIdentity) and self.pipeline is other.pipeline

    @override
    def __hash__(self) -> int:
        return id(self.pipeline)


@lru_cache(maxsize=_KEPT)
def _kept_fingerprint(key: _ByIdentity, _versions: tuple[int, ...]) -> str | None:
    """Return the fingerprint of a pipeline without functions; None for one with functions, whose sources may change."""
    pipeline = key.pipeline
    return None if pipeline.functions() else fingerprint(_declaration(pipeline))


def _declaration(pipeline: Pipeline) -> dict[str, object]:
    """Return all that the fingerprint is of, apart from users' functions."""
    applying = [name for name, applies in _RULES.items() if applies(pipeline)]
    if pipeline.windows is not None:
        applying += [name for name, applies in _RULES_OF_WINDOWS.items() if applies(pipeline.windows)]
    versions = {"semantics_version": [SEMANTICS_VERSION, STATE_VERSION], **{name: VERSIONS[name] for name in applying}}
    return {"spec": relevant_document(pipeline_document(pipeline)), **versions}


def _may_evict_all(windows: WindowsGrammar) -> bool:
    """Evictors that may keep no record, where panes accumulate. Those with a user's evictor have FUNCTIONS_VERSION.

    1: a firing without a result left the pane before it.
    """
    evictor = windows.evictor if windows.accumulation == "accumulating" else None
    return evictor is not None and (evictor.delta is not None or (evictor.count is not None and not evictor.count.keep))


def _has_endless_intervals(windows: WindowsGrammar) -> bool:
    """`continuous` by event time in windows that event time does not end.

    1: one watermark could pass any number of intervals.
    """
    parts = windows.trigger.whole() if windows.trigger and (windows.is_unbounded or windows.is_processing_time) else ()
    return any(part.continuous is not None and part.continuous.time == "event" for part in parts)


def _has_late_sessions(windows: WindowsGrammar) -> bool:
    """Sessions with `after_watermark` and `late`, or with a user's trigger, which may be one of these.

    1: a session that a late record had made longer than the watermark stayed late, and did not fire at its new end.
    """
    parts = windows.trigger.whole() if windows.trigger and (windows.session or windows.dynamic_session) else ()
    ends = [part.after_watermark for part in parts]
    return any(part.function for part in parts) or any(end is not None and end.late is not None for end in ends)


def _has_timeout_rules(windows: WindowsGrammar) -> bool:
    """A `timeout` around a trigger that waits for the clock, is composite or is a user's.

    1: a time-out deleted timers of that trigger, and kept its state when it reset the trigger.
    """
    parts = windows.trigger.whole() if windows.trigger else ()
    inside = [inner for part in parts if part.timeout is not None for inner in part.timeout.trigger.whole()]
    return any(part.kind not in _WITHOUT_TIMEOUT_RULES or part.needs_clock for part in inside)


def _combines_timestamps(windows: WindowsGrammar) -> bool:
    """A `timestamp_combiner`. 1: a retraction, or a superseded row, had the end of the window as its time."""
    return windows.timestamp_combiner != "end_of_window"


def _has_document_rules(windows: WindowsGrammar) -> bool:
    """MongoDB's stages with one of `_DOCUMENT_RULES`, if it has this field.

    1: $dateDiff counted no change of the clock, $dateToString wrote the offset of a time zone, wrong fields were
    ignored, and texts of doubles were Python's.
    """
    return windows.atlas is not None and _has_operators(windows.atlas.stage, _DOCUMENT_RULES)


def _has_operator_rules(windows: WindowsGrammar) -> bool:
    """MongoDB's stages with one of `_OPERATOR_RULES`, or with paths of inner fields.

    1: dates plus doubles, sets, decimals of doubles, and fields inside arrays of arrays were not those of MongoDB.
    """
    stage = windows.atlas.stage if windows.atlas else None
    return _has_operators(stage, _OPERATOR_RULES) or _has_paths(stage)


def _uses_clock(pipeline: Pipeline) -> bool:
    """The replay's clock. 1: records at the end of a slice that moved no time met the clock of the slice's end."""
    return pipeline.uses_clock


def _stores_records(pipeline: Pipeline) -> bool:
    """Users' triggers, evictors and gaps beside aggregates.

    1: structs were tuples, and records of open windows were stored by the places of their columns.
    """
    return bool(pipeline.windows is not None and pipeline.aggregates and pipeline.windows.functions())


def _retracts_structs(pipeline: Pipeline) -> bool:
    """Retracting panes of a user's function with a struct as output.

    1: a result that is a mapping of columns became null in a checkpoint, so a retraction after it had null.
    """
    is_retracting = pipeline.windows is not None and pipeline.windows.accumulation == "retracting"
    kinds = pipeline.process.output.values() if is_retracting and pipeline.process is not None else ()
    return any(kind.lstrip().startswith("struct") for kind in kinds)


_RULES: Final[Mapping[str, Callable[[Pipeline], bool]]] = {
    "clock_version": _uses_clock,
    "records_version": _stores_records,
    "retractions_version": _retracts_structs,
}
_RULES_OF_WINDOWS: Final[Mapping[str, Callable[[WindowsGrammar], bool]]] = {
    "timeouts_version": _has_timeout_rules,
    "combiners_version": _combines_timestamps,
    "continuous_version": _has_endless_intervals,
    "evictors_version": _may_evict_all,
    "session_ends_version": _has_late_sessions,
    "documents_version": _has_document_rules,
    "operators_version": _has_operator_rules,
}
"""Name of a version in the fingerprint -> whether it counts for a pipeline, or its windows: only these get new runs.

The docstring of a rule tells what it is about, and what was wrong up to version 1.
"""
VERSIONS: Final = dict.fromkeys((*_RULES, *_RULES_OF_WINDOWS), 2)
"""The newest version of each rule."""


def _has_operators(value: object, rules: Mapping[str, str | None]) -> bool:
    """Return whether a part of a stage has an operator of `rules`, with the field that the rule is about."""
    if isinstance(value, Mapping):
        operators = [(value[name], field) for name, field in rules.items() if name in value]
        has_rule = any(field is None or (isinstance(at, Mapping) and field in at) for at, field in operators)
        return has_rule or any(_has_operators(inner, rules) for inner in value.values())
    return isinstance(value, list) and any(_has_operators(inner, rules) for inner in value)


def _has_paths(value: object) -> bool:
    """Return whether a stage, or one inside it, has a path of an inner field."""
    if isinstance(value, Mapping):
        stages = [value[name] for name in _STAGES_WITH_PATHS if name in value]
        return any(map(_has_inner_path, stages)) or any(map(_has_paths, value.values()))
    return isinstance(value, list) and any(map(_has_paths, value))


def _has_inner_path(stage: object) -> bool:
    """Return whether a stage names a field inside another one: `a.b`, `{path: $a.b}`, `{a.b: 1}` or `{a: {b: 1}}`."""
    if isinstance(stage, Mapping):
        inner = [value for value in stage.values() if isinstance(value, Mapping)]
        is_nested = any(not name.startswith("$") for value in inner for name in value)
        named = [stage.get("path"), stage.get("includeArrayIndex")]
        return is_nested or any("." in name for name in stage) or any(map(_has_inner_path, named))
    return (isinstance(stage, str) and "." in stage) or (isinstance(stage, list) and any(map(_has_inner_path, stage)))


def relevant_document(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a pipeline that can change a row of a run. `document` is of `pipeline_document`."""
    log = {key: value for key, value in document["log"].items() if key not in _IRRELEVANT_OF_LOG}
    log["slice"] = {key: value for key, value in log["slice"].items() if key not in _IRRELEVANT_OF_SLICE}
    orders = {place: keys for place, keys in key_orders(document).items() if keys != sorted(keys)}
    order = {"order": orders} if orders else {}  # specs in alphabetical order are those of earlier versions
    return {key: value for key, value in document.items() if key not in _IRRELEVANT} | {"log": log} | order


def key_orders(document: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return place -> keys, of the mappings in a pipeline whose order can change a row.

    A function returns the values of `output` in order, and gets columns and aggregates in order. Windows that keep
    records store them by the place of each column. MongoDB documents, and `$sort`, are ordered.
    """
    windows, process = document.get("windows", {}), document.get("process", {})
    keeps_records = "evictor" in windows or "storm" in windows or "slide" in windows.get("count", {})
    outputs = {f"process.side_outputs.{tag}": columns for tag, columns in process.get("side_outputs", {}).items()}
    places = {
        "process.output": process.get("output", {}),
        "aggregates": document.get("aggregates", {}) if process or keeps_records else {},
        "log.columns": document["log"].get("columns", {}) if process or "atlas" in windows else {},
        **outputs,
    }
    orders = {place: list(mapping) for place, mapping in places.items() if len(mapping) > 1}
    for kind, window in windows.get("atlas", {}).items():
        stages = window.get("pipeline", []) if isinstance(window, Mapping) else []
        orders |= dict(_orders_in(f"windows.atlas.{kind}.pipeline", stages))
    return orders


def _orders_in(place: str, value: object) -> Iterator[tuple[str, list[str]]]:
    """Yield the places and the keys of all mappings in a document that have several keys."""
    if isinstance(value, Mapping):
        if len(value) > 1:
            yield place, list(value)
        for key, inner in value.items():
            yield from _orders_in(f"{place}.{key}", inner)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _orders_in(f"{place}[{number}]", inner)


def checks_fingerprint(pipeline: Pipeline, suite: Mapping[str, object] | None) -> str:
    """Return the fingerprint of the checks: the suite's JSON document and the severity that stops publication.

    `quality.confirm` is not a part of it: it changes a result only to an error, and a run with an error is checked
    again by the next request in any case.
    """
    return fingerprint({"suite": suite, "fail_on": pipeline.quality.fail_on if pipeline.quality else None})


def run_id(*, pipeline: str, slice_: Slice, spec: str, input: str, state_before: str) -> str:  # noqa: A002 (the glossary's word)
    """Return the id of the run of one slice: 32 hex digits of the hash of all that determines the run.

    `spec` is from `spec_fingerprint`, `input` the fingerprint of the records in log order, and `state_before` that of
    the checkpoint before the slice, or `EMPTY_STATE`.
    """
    place = [slice_.slice_id, slice_.start_ms, slice_.end_ms]
    return fingerprint([pipeline, *place, spec, input, state_before])[:RUN_ID_DIGITS]


def state_of(digests: Mapping[str, str], *, version: int = STATE_VERSION) -> str:
    """Return the fingerprint of a checkpoint from the digests of its tables. A table without a digest has no rows."""
    text = ";".join(f"{name}={digests.get(name, NO_ROWS)}" for name in CHECKPOINT_TABLES)
    return hashlib.sha256(f"state:{version};{text}".encode("ascii")).hexdigest()
