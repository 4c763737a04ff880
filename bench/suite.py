"""The contests of `make bench`, at a size."""

from collections.abc import Mapping
from typing import Any, Final, Literal

from bench.contests import Contest, Target
from bench.log_forms import FORMS, Form
from bench.workloads import MINUTE_MS, Workload

Size = Literal["S", "M", "L"]
SIZES: Final[tuple[Size, ...]] = ("S", "M", "L")
HOUR_MS: Final = 60 * MINUTE_MS
RECORDS: Final[Mapping[Size, int]] = {"S": 200_000, "M": 20_000_000, "L": 100_000_000}
BY_OPERATOR: Final[Mapping[Size, int]] = {"S": 50_000, "M": 1_000_000, "L": 1_000_000}
"""Records of the contests in which the operator takes part."""
BY_STREAMS: Final = 50_000
"""Records of the contests with an engine that has a cost for each open window at each record."""
PEERS_IN_MEMORY: Final = ("duckdb", "polars")
PEERS_FROM_FILES: Final = ("spark", "duckdb_files", "polars_files")

TUMBLING: Final = {
    "tumble_dense": Workload(kind="tumbling", size=MINUTE_MS, keys=100),
    "tumble_sparse": Workload(kind="tumbling", size=MINUTE_MS, keys=10_000),
    "tumble_unique": Workload(kind="tumbling", size=MINUTE_MS, keys=1_000_000),
}
SLIDING: Final = {
    "slide60_dense": Workload(kind="sliding", size=HOUR_MS, slide=MINUTE_MS, keys=100),
    # One million records in half a day make 7.6 million windows.
    "slide60_sparse": Workload(kind="sliding", size=HOUR_MS, slide=MINUTE_MS, keys=10_000, density=2_000_000),
}
SESSIONS: Final = {
    "session30_10k": Workload(kind="session", gap_ms=30_000, keys=10_000),
    "session30_1m": Workload(kind="session", gap_ms=30_000, keys=1_000_000),
}
COUNTS: Final = {"count_tumble": Workload(kind="count", size=100, keys=10_000)}
LATE: Final = {
    "late_heavy": Workload(kind="tumbling", size=MINUTE_MS, keys=10_000, lateness_ms=MINUTE_MS, late_one_in=10)
}
GENERAL: Final = {
    "trigger_general": Workload(
        kind="tumbling",
        size=HOUR_MS,
        keys=1_000,
        trigger={"continuous": {"every": "10m", "time": "event"}},
        evictor={"count": {"keep": 10}},
    )
}
IN_MEMORY: Final = TUMBLING | SLIDING | SESSIONS | COUNTS | LATE
END_TO_END: Final = {
    name: (TUMBLING | SLIDING | SESSIONS)[name]
    for name in ("session30_10k", "session30_1m", "tumble_dense", "tumble_sparse", "slide60_sparse")
}
NOTHING: Final = Workload(kind="tumbling", size=MINUTE_MS, keys=1)
PIPELINES: Final = ("flights", "carriers", "rotations")


def suite(size: Size, *, days: int = 366) -> list[Contest]:
    """Return all contests in the order of the page. `days` is the length of the year of flights.

    One slice of 100 million records has to finish with the memory of 20 million. The size L is that contest alone; the
    size S is without it.
    """
    if size == "L":
        return [_large()]
    return [
        *_in_memory(size),
        *_end_to_end(size),
        *_cold(size),
        *([_large()] if size == "M" else []),
        _intakes(size),
        _watermarks(size),
        *_year(days),
        *_small(days),
        *_state(size),
    ]


def _in_memory(size: Size) -> list[Contest]:
    contests = []
    for name, workload in IN_MEMORY.items():
        few = name == "slide60_sparse"
        contests.append(
            Contest(
                name=f"columns_{name}",
                title=f"Windows in memory: {name}",
                what="Columns in, columns out, one thread, no Spark: windows, late records, panes, state and tallies. "
                "DuckDB and Polars compute the windows only. Each contestant has a warm process."
                + (" Flink reads and writes plain binary files." if few else ""),
                contestants=("hindcast_columns", *PEERS_IN_MEMORY, *(("flink",) if few else ())),
                workload=workload,
                records=BY_OPERATOR[size] if few else RECORDS[size],
                source="memory",
                measure="cpu_s",
                targets=_column_targets(name),
            )
        )
    for name, workload in (IN_MEMORY | GENERAL).items():
        contests.append(
            Contest(
                name=f"operator_{name}",
                title=f"Beside the operator: {name}",
                what="The same, with fewer records, beside the operator that runs any trigger record by record.",
                contestants=("hindcast_columns", "operator"),
                workload=workload,
                records=BY_OPERATOR[size] // (20 if workload.kind == "sliding" else 1),
                source="memory",
                measure="cpu_s",
                targets=_operator_targets(name),
            )
        )
    contests += [
        Contest(
            name=f"stream_{name}",
            title=f"Beside an engine for streams in Python: {name}",
            what="Few records, beside the operator and Bytewax, if `make bench-bytewax` has fetched it. One thread.",
            contestants=("hindcast_columns", "operator", "bytewax"),
            workload=IN_MEMORY[name],
            records=BY_STREAMS,
            source="memory",
            measure="cpu_s",
        )
        for name in ("tumble_dense", "tumble_sparse")
    ]
    return contests


def _column_targets(name: str) -> tuple[Target, ...]:
    match name:
        case "tumble_dense" | "tumble_sparse":
            return (Target(unit="rate", must=10, aim=25, ours="hindcast_columns"),)
        case "slide60_sparse":
            return (Target(unit="ratio", must=20, aim=100, ours="hindcast_columns", peer="flink", measure="cpu_s"),)
        case _:
            return ()


def _operator_targets(name: str) -> tuple[Target, ...]:
    ours = {"ours": "hindcast_columns", "peer": "operator", "measure": "cpu_s"}
    match name:
        case "tumble_dense":
            rate = Target(unit="rate", must=0.8, aim=1.0, ours="operator")
            return (Target(unit="ratio", must=10, aim=25, **_typed(ours)), rate)
        case "tumble_sparse":
            rate = Target(unit="rate", must=0.35, aim=0.5, ours="operator")
            return (Target(unit="ratio", must=10, aim=25, **_typed(ours)), rate)
        case _:
            return ()


def _typed(named: dict[str, str]) -> dict[str, Any]:
    return dict(named)


def _end_to_end(size: Size) -> list[Contest]:
    targets: dict[str, tuple[Target, ...]] = {
        "session30_10k": (
            Target(unit="ratio", must=3, aim=10, ours="hindcast", peer="spark"),
            Target(unit="ratio", must=1, aim=3, ours="hindcast", peer="duckdb_files"),
            Target(unit="mb", must=2_048, aim=1_024, ours="hindcast", role="jvm"),
            Target(unit="mb", must=1_229, aim=614, ours="hindcast", role="worker"),
        ),
        "tumble_dense": (Target(unit="ratio", must=1, aim=3, ours="hindcast", peer="spark"),),
        "tumble_sparse": (Target(unit="ratio", must=2, aim=5, ours="hindcast", peer="spark"),),
    }
    return [
        Contest(
            name=f"replay_{name}",
            title=f"End to end: {name}",
            what="From a Delta log with row tracking to committed rows. Hindcast also writes the checkpoint, the late "
            "records and the tallies, audits what it wrote, and publishes it. Spark writes a Delta table, "
            "DuckDB and Polars write a Parquet file. Warm processes, all cores.",
            contestants=("hindcast", *PEERS_FROM_FILES, *_streams(name)),
            workload=workload,
            records=BY_OPERATOR[size] if name == "slide60_sparse" else RECORDS[size],
            source="log",
            targets=targets.get(name, ()),
        )
        for name, workload in END_TO_END.items()
    ]


def _cold(size: Size) -> list[Contest]:
    return [
        Contest(
            name=f"cold_{name}",
            title=f"From the command to its end: {name}",
            what="The same as end to end, but each run is a new process: the start of Python and of the JVM, imports "
            "and compiled loops count.",
            contestants=("hindcast_cold", "duckdb_cold", "polars_cold"),
            workload=END_TO_END[name],
            records=RECORDS[size],
            source="log",
            targets=(Target(unit="ratio", must=1.2, aim=2.5, ours="hindcast_cold", peer="duckdb_cold"),)
            if name == "session30_10k"
            else (),
        )
        for name in ("session30_10k", "tumble_dense", "tumble_sparse")
    ]


def _intakes(size: Size) -> Contest:
    most: dict[Form, float] = {"optimized": 1.2, "in order": 1.2, "shuffled": 1.5}
    named = {form: f"intake@{title}" for form, title in FORMS.items()}
    return Contest(
        name="intakes",
        title="Logs of several forms",
        what="End to end: sessions of 30 s of 10,000 keys, from the same records in Delta logs of several forms. Warm "
        "processes, all cores. The profiles below tell the greatest size of the files that a replay stores meanwhile.",
        contestants=tuple(named.values()),
        workload=SESSIONS["session30_10k"],
        records=RECORDS[size],
        source="own",
        targets=tuple(
            Target(unit="ratio", must=1 / times, aim=1, ours=named[form], peer=named["tracked"])
            for form, times in most.items()
        ),
        options={title: {"form": form} for form, title in named.items()},
    )


def _large() -> Contest:
    return Contest(
        name="replay_one_large_slice",
        title="One slice of 100 million records",
        what="End to end: sessions of 30 s of 10,000 keys. It has to finish with the memory of a smaller log.",
        contestants=("hindcast",),
        workload=SESSIONS["session30_10k"],
        records=RECORDS["L"],
        source="log",
        rounds=1,
        targets=(
            Target(unit="mb", must=2_048, aim=1_024, ours="hindcast", role="jvm"),
            Target(unit="mb", must=1_229, aim=614, ours="hindcast", role="worker"),
        ),
    )


def _streams(name: str) -> tuple[str, ...]:
    return ("spark_streaming", "flink") if name != "session30_1m" else ()


def _watermarks(size: Size) -> Contest:
    return Contest(
        name="watermark_scan",
        title="The watermark of a log",
        what="Every rise of the greatest event time in the order of the log. Hindcast also numbers the records.",
        contestants=("hindcast_scan", "spark_scan"),
        workload=TUMBLING["tumble_sparse"],
        records=RECORDS[size],
        source="log",
        targets=(Target(unit="ratio", must=5, aim=25, ours="hindcast_scan", peer="spark_scan"),),
    )


def _year(days: int) -> list[Contest]:
    return [
        Contest(
            name=f"year_{pipeline}",
            title=f"The flights of 2013: {pipeline}",
            what=f"{days} daily slices as one request with all checks, after Spark's start. The failed checks of the "
            "blizzard in February are waived.",
            contestants=("flights",),
            workload=NOTHING,
            records=0,
            source="own",
            equal="rounds",
            rounds=3,
            targets=(Target(unit="seconds", must=60, aim=20, ours="flights"),),
            options={"flights": {"pipeline": pipeline, "days": days, "log_days": days}},
        )
        for pipeline in PIPELINES
    ]


def _small(days: int) -> list[Contest]:
    common: dict[str, Any] = {"workload": NOTHING, "records": 0, "source": "own"}
    line = tuple(f"flights@{count} days" for count in (5, 10, 20, 30))
    on_flights = {"pipeline": "flights", "log_days": days}
    return [
        Contest(
            name="warm_slice",
            title="A warm small slice",
            what="The next day of flights on a warm session, with its checks, committed and published.",
            contestants=("next_day",),
            equal="none",
            targets=(Target(unit="seconds", must=1, aim=0.5, ours="next_day"),),
            options={"next_day": on_flights},
            **common,
        ),
        Contest(
            name="small_days",
            title="Small days in one backfill",
            what="The first days of flights as one request, after Spark's start. The cost should be a straight line.",
            contestants=line,
            equal="rounds",
            targets=(Target(unit="seconds", must=15, aim=8, ours=line[-1]),),
            options={name: {**on_flights, "days": int(name.split("@")[1].split()[0])} for name in line},
            **common,
        ),
        Contest(
            name="cold_start",
            title="From a cold start to the first committed slice",
            what="`hindcast run` of one day of flights in a new process, to its end.",
            contestants=("cold_start",),
            equal="rounds",
            targets=(Target(unit="seconds", must=12, aim=6, ours="cold_start"),),
            options={"cold_start": on_flights},
            **common,
        ),
        Contest(
            name="old_day",
            title="One old day reprocessed",
            what=f"One of {days - 1} replayed days got another file. The range is run again, beside one new day.",
            contestants=("old_day", "next_day"),
            equal="none",
            rounds=3,
            targets=(Target(unit="ratio", must=0.67, aim=1, ours="old_day", peer="next_day"),),
            options={"old_day": {**on_flights, "days": days - 1}, "next_day": on_flights},
            **common,
        ),
    ]


def _state(size: Size) -> list[Contest]:
    windows = 20_000 if size == "S" else 1_000_000
    touched = windows // 100
    some, all_ = "open_windows", "open_windows@the touched windows alone"
    return [
        Contest(
            name="open_windows",
            title="State of many open windows",
            what=f"A slice touches {touched:,} of {windows:,} open windows, beside one that touches all {touched:,}.",
            contestants=(some, all_),
            workload=NOTHING,
            records=touched,
            source="own",
            targets=(Target(unit="ratio", must=1 / 3, aim=1 / 1.5, ours=some, peer=all_),),
            options={some: {"open": windows, "touched": touched}, all_: {"open": touched, "touched": touched}},
        )
    ]
