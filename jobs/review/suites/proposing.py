"""Proposes a first suite from the published runs of a pipeline. Deterministic; writes nothing itself."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from expectations.suites import LATE_RECORDS, RUN, TABLES, WINDOW_OUTPUTS, Suite
from jobs.folding import spans
from jobs.plain_text import counted, escaped_json
from jobs.review.suites.history import PastTables
from jobs.review.suites.probes import Probe, Seen, probes
from jobs.review.suites.ranges import Rule
from windowlib.errors import RequestError
from windowlib.libraries import pa

if TYPE_CHECKING:
    from jobs.pipeline.models.pipeline import Pipeline

RUNS_NEEDED = 14
"""A proposal from fewer runs says that its ranges are too narrow to gate on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A proposed suite file: its `document`, from how many runs, and whether those are enough.

    `not_proposed` names the checks that Hindcast does not compute for the types of their columns.
    """

    document: Mapping[str, Any]
    not_proposed: tuple[str, ...]
    runs: int
    runs_needed: int

    @property
    def has_enough(self) -> bool:
        """Whether the history is long enough for ranges."""
        return self.runs >= self.runs_needed

    @property
    def checks(self) -> int:
        return sum(len(suite["expectations"]) for suite in self.document.values())

    @property
    def text(self) -> str:
        """The content of the file. Equal histories give equal texts. It is safe to print."""
        return escaped_json(self.document, indent=2) + "\n"


def propose(
    pipeline: "Pipeline", past: PastTables, *, rule: Rule | None = None, runs_needed: int = RUNS_NEEDED
) -> Proposal:
    """Return a suite that passes on every run of the history, with the history that justifies each check.

    A history of fewer than `runs_needed` is noted in the suites.

    Raises:
        RequestError: the history has no run.
        StoreError: rows cannot be read, or differ from those that were written.
    """
    history = past.history
    if not history.runs:
        raise RequestError(
            f"pipeline {history.pipeline} has no run to learn from{_left_out(history.left_out)}. Publish "
            f"{'other' if history.left_out else 'some'} slices first, or choose another range"
        )
    chosen = rule or Rule()
    seen, not_proposed = _measured(pipeline, past)
    made: dict[str, list[dict[str, Any]]] = {}
    for probe, results in seen:
        made.setdefault(probe.table, []).extend(probe.make(results, chosen))
    meta = _meta(past, chosen, runs_needed) | ({"not_proposed": list(not_proposed)} if not_proposed else {})
    document = {
        table: {"name": f"{history.pipeline}.{table}", "expectations": made[table], "meta": meta}
        for table in TABLES
        if made.get(table)
    }
    return Proposal(document=document, not_proposed=not_proposed, runs=len(history.runs), runs_needed=runs_needed)


def _measured(pipeline: "Pipeline", past: PastTables) -> tuple[list[tuple[Probe, list[Seen]]], tuple[str, ...]]:
    """Run the probes over the whole history, block by block. Return their results, and which could not be run."""
    from expectations.slices import check_slices

    suites: dict[str, Suite] = {}
    by_table: dict[str, list[tuple[Probe, list[Seen]]]] = {}
    not_proposed: tuple[str, ...] = ()
    for block in past.blocks():
        if not suites:
            by_table, suites, not_proposed = _prepared(pipeline, past, block)
        tables = past.tables_of(block, suites.values())
        for name, suite in suites.items():
            for run, outcomes in zip(block, check_slices(suite, tables[name]), strict=True):
                for (_, seen), outcome in zip(by_table[name], outcomes, strict=True):
                    slice_id, observed = run.result.slice.slice_id, json.loads(outcome.observed)
                    seen.append(Seen(slice_id=slice_id, success=outcome.success, observed=observed))
    return [pair for pairs in by_table.values() for pair in pairs], not_proposed


def _prepared(
    pipeline: "Pipeline", past: PastTables, block: Sequence[Any]
) -> "tuple[dict[str, list[tuple[Probe, list[Seen]]]], dict[str, Suite], tuple[str, ...]]":
    """Return the probes that are compiled for the stored columns, by table, the suite of each table, and the others."""
    from expectations.compiled.compiler import compile_check

    schemas: dict[str, pa.Schema] = {
        name: past.table(name, block[:1], None).schema for name in (WINDOW_OUTPUTS, LATE_RECORDS, RUN)
    }
    by_table: dict[str, list[tuple[Probe, list[Seen]]]] = {}
    not_compiled: list[str] = []
    for probe in probes(pipeline, schemas):
        schema, check = schemas[probe.table], probe.check(0)
        if not check.read_columns <= set(schema.names):
            continue
        if compile_check(check, schema, 1) is None:
            not_compiled.append(f"{probe.table}: {check.type} of {', '.join(check.columns)}")
        else:
            by_table.setdefault(probe.table, []).append((probe, []))
    suites = {
        name: Suite(name=name, table=name, checks=tuple(probe.check(n) for n, (probe, _) in enumerate(pairs)))
        for name, pairs in by_table.items()
    }
    return by_table, suites, tuple(dict.fromkeys(not_compiled))


def _meta(past: PastTables, rule: Rule, runs_needed: int) -> dict[str, Any]:
    history = past.history
    meta: dict[str, Any] = {
        "made_by": "hindcast suite propose",
        "pipeline": history.pipeline,
        "ledger_version": history.ledger_version,
        "spec": history.runs[0].result.spec_fingerprint,
        "runs": len(history.runs),
        "first_slice": history.slice_ids[0],
        "last_slice": history.slice_ids[-1],
        "left_out": {reason: list(names) for reason, names in history.left_out.items()},
        "rule": {"low": rule.low, "high": rule.high, "margin": rule.margin},
    }
    if len(history.runs) < runs_needed:
        meta["too_little_history"] = (
            f"made from {counted(len(history.runs), 'run')}; with fewer than {runs_needed}, ranges are too narrow to "
            "stop publication"
        )
    return meta


def _left_out(left_out: Mapping[str, Sequence[str]]) -> str:
    """Return which slices are not part of the history, and why, as a part of a sentence."""
    parts = [f"{spans([[name] for name in names])}: {reason}" for reason, names in left_out.items()]
    return f" (left out: {'; '.join(parts)})" if parts else ""
