"""`plan --explain` says how a range would run, and why not otherwise."""

from dataclasses import replace

import pytest

from jobs.engine.window_spec import engine, pipeline_functions
from jobs.replay.intake.chunk_log import why_not_partials
from jobs.review.execution import Execution
from tests.support.replays import pipeline_of

BEST = Execution(
    why_not_kernels=None, why_spark=None, why_doubtful=None, scratch_bytes=5_000_000, why_not_partials=None
)
PIPELINE = """
pipeline: counts
log:
  table: log
  key: [k]
  event_time: {{column: at, unit: ms}}
  arrival_time: {{column: at, unit: ms}}
  slice: {{by: day}}
watermark: {watermark}
windows: {windows}
aggregates: {aggregates}
"""
BOUNDED, HOURS, COUNT = "{kind: bounded, out_of_orderness: 1h}", "{tumbling: {size: 1h}}", "{n: {count: {}}}"


def test_the_sentences_tell_the_executor_who_reads_the_log_and_what_tasks_exchange() -> None:
    assert BEST.sentences == (
        "The columnar executor computes the windows.",
        "Tasks read the log's files in the order in which they were appended.",
        "They add up many records of one key and window before they exchange them.",
    )
    assert replace(BEST, why_not_partials="of this").sentences[2] == "They exchange single records: of this."
    space = "new files take up to about 5.0 MB on the disk while the chunk runs"
    assert replace(BEST, why_not_kernels="of this").sentences[0].endswith(": of this.")
    assert len(replace(BEST, why_not_kernels="of this").sentences) == 2
    for other in (replace(BEST, why_doubtful="of this"), replace(BEST, why_spark="of this")):
        assert other.sentences[1].endswith(f": of this; {space}.")


@pytest.mark.parametrize(
    ("size", "text"),
    [(1_234_567_890, "1,234.6 MB"), (100_000, "0.1 MB"), (99_949, "99.9 kB"), (812, "0.8 kB"), (0, "0.0 kB")],
)
def test_a_small_size_has_a_small_unit(size: int, text: str) -> None:
    """Defect: a log of a few kB was told as `about 0.0 MB`."""
    sentence = replace(BEST, why_spark="of this", scratch_bytes=size).sentences[1]
    assert f"take up to about {text} on the disk" in sentence


@pytest.mark.parametrize(
    ("watermark", "windows", "aggregates", "reason"),
    [
        (BOUNDED, HOURS, COUNT, None),
        (BOUNDED, "{sliding: {size: 1h, slide: 5m}}", COUNT, None),
        (BOUNDED, "{session: {gap: 1h}}", COUNT, "windows of Session have no slices of time"),
        (BOUNDED, HOURS, "{one: {first: v}}", "an aggregate depends on the order of the records"),
        (BOUNDED, HOURS, "{one: {sum: d28}}", None),
        (BOUNDED, HOURS, "{one: {sum: d29}}", "a sum of some of the decimals may have more than 38 digits"),
        (BOUNDED, HOURS, "{one: {max: d29}}", None),
        (BOUNDED, "{count: {size: 3}}", COUNT, "windows of Global have no slices of time"),
        (
            "{kind: bounded, out_of_orderness: 1h, emit: {every: 1m}}",
            HOURS,
            COUNT,
            "the watermark depends on more than the greatest event time so far",
        ),
    ],
)
def test_records_are_combined_where_the_contents_of_windows_do_not_depend_on_single_records(
    watermark: str, windows: str, aggregates: str, reason: str | None
) -> None:
    pipeline = pipeline_of(PIPELINE.format(watermark=watermark, windows=windows, aggregates=aggregates))
    decimals = {"d28": "decimal(28,2)", "d29": "decimal(29,2)"}
    columns = {"k": "string", "at": "bigint", "v": "bigint", "day": "date", **decimals}
    assert why_not_partials(engine(pipeline, columns, pipeline_functions(pipeline))) == reason
