"""What determines a run, as hashes: with the same fingerprints come the same rows (law L1), so one run is enough.

A fingerprint is the lower-case hex of the SHA-256 of canonical JSON (sorted keys, no spaces, UTF-8).
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from jobs.engine.user_functions import Functions
from jobs.pipeline.files import pipeline_document
from jobs.pipeline.models.pipeline import Pipeline
from jobs.runs import Slice
from windowlib.keyed.snapshots import STATE_VERSION
from windowlib.records.row_ids import IdSum
from windowlib.records.tables import CHECKPOINT_TABLES

# Raised whenever windowlib answers a spec differently than before; every run is then a new one.
SEMANTICS_VERSION = 2

RUN_ID_DIGITS = 32

# What cannot change a row of a run. The log's table and its readiness only decide where and when records are read;
# their content and order are in the input fingerprint. `first` and `last` say which slices exist; where a chain begins
# is in the state before.
_IRRELEVANT = ("pipeline", "quality", "schedule", "owner", "description")
_IRRELEVANT_OF_LOG = ("table", "ready")
_IRRELEVANT_OF_SLICE = ("first", "last")


def fingerprint(value: object) -> str:
    """The hash of plain data.

    Raises:
        TypeError, ValueError: the value is not JSON, or holds NaN.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).hexdigest()


def spec_fingerprint(pipeline: Pipeline) -> str:
    """The hash of every field that can change a row, of the profile, and of the versions of semantics and of state.

    Defaults count as if they were written, units do not matter (`60m` is `1h`), nor does the order of aggregates. Of a
    user's function its source counts, or the `version` that the file gives it.

    Raises:
        SpecError: the module of a function is not there, or cannot be read.
    """
    document: dict[str, Any] = {
        key: value for key, value in pipeline_document(pipeline).items() if key not in _IRRELEVANT
    }
    log = {key: value for key, value in document["log"].items() if key not in _IRRELEVANT_OF_LOG}
    log["slice"] = {key: value for key, value in log["slice"].items() if key not in _IRRELEVANT_OF_SLICE}
    whole: dict[str, object] = {
        "semantics_version": [SEMANTICS_VERSION, STATE_VERSION],
        "spec": document | {"log": log},
    }
    if pipeline.functions():
        found = Functions(source=pipeline.source, directory=pipeline.functions_dir)
        whole["functions"] = {one.name: found.source_of(one, one.name) for one in pipeline.functions()}
    return fingerprint(whole)


def checks_fingerprint(pipeline: Pipeline, suite: Mapping[str, object] | None) -> str:
    """The hash of what judges a run: the suite's JSON document and the severity that stops publication."""
    return fingerprint({"suite": suite, "fail_on": pipeline.quality.fail_on if pipeline.quality else None})


def run_id(*, pipeline: str, one: Slice, spec: str, input: str, state_before: str) -> str:  # noqa: A002 (the glossary's word)
    """The id of the run of one slice: 32 hex digits of the hash of all that determines it.

    Args:
        pipeline: its name.
        one: the slice; its bounds count, not only its id.
        spec: from `spec_fingerprint`.
        input: the fingerprint of the slice's records in log order.
        state_before: the fingerprint of the checkpoint before, or `EMPTY_STATE`.
    """
    return fingerprint([pipeline, one.slice_id, one.start_ms, one.end_ms, spec, input, state_before])[:RUN_ID_DIGITS]


def state_of(digests: Mapping[str, str]) -> str:
    """The fingerprint of a checkpoint, of the digests of its tables; a table without a digest has no rows."""
    text = ";".join(f"{name}={digests.get(name, IdSum().digest())}" for name in CHECKPOINT_TABLES)
    return hashlib.sha256(f"state:{STATE_VERSION};{text}".encode("ascii")).hexdigest()
