"""Compiles a pipeline to the Engine that a replay runs: from the words of the file to windowlib's specs."""

from collections.abc import Mapping
from dataclasses import replace
from typing import assert_never

from jobs.engine.build import Build
from jobs.engine.engine import Engine
from jobs.engine.layout import Layout, mapping_layout
from jobs.engine.placed_errors import PlacedSpecError, naming
from jobs.engine.time_spec import time_spec
from jobs.engine.trigger_spec import evictor, trigger
from jobs.engine.user_functions import Functions
from jobs.pipeline.models.grammar import Nothing
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.models.process import ProcessGrammar, StateGrammar
from jobs.pipeline.models.windows import (
    CountWindow,
    DynamicSession,
    GapGrammar,
    Session,
    Sliding,
    Tumbling,
    WindowsGrammar,
)
from windowlib.errors import SpecError
from windowlib.functions.aggregates import Aggregate, Columns, SumDecimal
from windowlib.functions.window_functions import (
    Aggregates,
    Apply,
    ProcessFunction,
    Reduce,
    UserAggregate,
    Whole,
    WindowFunction,
    aggregate,
)
from windowlib.keyed.call_context import NO_WATERMARK
from windowlib.keyed.process_operator import KeyedProcessFunction
from windowlib.keyed.state import StateSpec
from windowlib.profiles import profile
from windowlib.windows import assigners
from windowlib.windows.declared_functions import (
    JSON_STATE,
    DeclaredAggregate,
    DeclaredKeyedProcess,
    DeclaredProcess,
    DeclaredReduce,
    KeyedProcessSpec,
    declared_aggregate,
)
from windowlib.windows.record_readers import ColumnsOf, GapOfColumn, GapOfFunction
from windowlib.windows.spec import WindowSpec, count_windows


def pipeline_functions(pipeline: Pipeline) -> Functions:
    """Return the users' functions of a pipeline. None of them is imported yet."""
    return Functions(source=pipeline.source, directory=pipeline.functions_dir)


def pipeline_aggregates(pipeline: Pipeline, columns: Mapping[str, str]) -> dict[str, Aggregate]:
    """Build the aggregates of a pipeline, by name, in the order of the file.

    `columns` are the log's: name -> Spark type.
    Raises SpecError: an aggregate does not take the type of its column; the message names the file and the aggregate.
    """
    built: dict[str, Aggregate] = {}
    for name, grammar in pipeline.aggregates.items():
        input_type = None if grammar.column is None else columns.get(grammar.column)
        with naming(pipeline.source, f"aggregates.{name}"):
            built[name] = aggregate(grammar.kind, input_type, name=name)
    return built


def changed_states(pipeline: Pipeline, columns: Mapping[str, str], former: Mapping[str, str]) -> list[str]:
    """Return the aggregates whose running state has another form with the columns than with the former columns.

    Raises SpecError: as for `pipeline_aggregates`.
    """
    if pipeline.windows is None or pipeline.windows.keeps_records:
        return []
    before, now = pipeline_aggregates(pipeline, former), pipeline_aggregates(pipeline, columns)
    return [name for name, aggregate in now.items() if _state_form(aggregate) != _state_form(before[name])]


def _state_form(aggregate: Aggregate) -> tuple[object, ...]:
    # The total of decimals is in units of the last digit.
    return aggregate.state_columns, aggregate.scale if isinstance(aggregate, SumDecimal) else 0


def engine(pipeline: Pipeline, columns: Mapping[str, str], functions: Functions | None = None) -> Engine:
    """Compile a pipeline for a log with these columns. This imports the users' functions.

    `validate_against_schema` has accepted the pipeline. `columns` are the log's: name -> Spark type. A caller passes
    `functions`, from `pipeline_functions`, to ship the imported modules to Spark's workers.
    Raises SpecError: the parts do not fit together, or a function has the wrong kind; the message names file and key.
    """
    functions = functions or pipeline_functions(pipeline)
    if pipeline.aggregates:
        read = [grammar.column for grammar in pipeline.aggregates.values()]
        layout = Layout(kind="tuple", log_columns=tuple(columns), columns=read)
    else:
        shown = pipeline.process.function.columns if pipeline.process is not None else None
        layout = mapping_layout(shown or columns, columns)
    compiled = _engine(Build(pipeline=pipeline, columns=columns, functions=functions, layout=layout))
    return replace(compiled, needs_clock=pipeline.uses_clock)


def _engine(build: Build) -> Engine:
    pipeline = build.pipeline
    windows = pipeline.windows
    if windows is not None and windows.atlas is not None:
        from jobs.engine.foreign_spec import atlas_engine  # it imports all of Atlas: 0.1 s

        return atlas_engine(windows.atlas, build)
    aggregates = pipeline_aggregates(pipeline, build.columns)
    function = _function(build, aggregates)
    if windows is not None and windows.storm is not None:
        from jobs.engine.foreign_spec import storm_engine

        return _finished(storm_engine(windows.storm, build, function), build, aggregates)
    if windows is None:
        assert isinstance(function, KeyedProcessFunction), "without windows the grammar requires a process"
        operator: KeyedProcessSpec | WindowSpec = KeyedProcessSpec(function)
    else:
        assert not isinstance(function, KeyedProcessFunction), "the pipeline has windows"
        with naming(pipeline.source, "windows"):
            operator = _windows(windows, build, function)
    run = Engine(
        operator=operator, time=time_spec(pipeline.watermark, build), layout=build.layout.built(), outputs={},
        accumulators={},
    )  # fmt: skip
    return _finished(run, build, aggregates)


def _finished(run: Engine, build: Build, aggregates: Mapping[str, Aggregate]) -> Engine:
    """Add the columns of the pipeline's tables to an Engine."""
    process, windows = build.pipeline.process, build.pipeline.windows
    outputs = {name: own.output_type for name, own in aggregates.items()}
    running = {name: own.state_columns for name, own in aggregates.items()} or _running_state(run, process)
    # Sliding count windows have an evictor that is not in the file. Only the operator's spec shows it.
    is_running = isinstance(run.operator, WindowSpec) and not run.operator.keeps_records
    accumulators = {name: dict(columns) for name, columns in running.items()} if is_running else {}
    run = replace(
        run,
        outputs=outputs,
        accumulators=accumulators,
        keeps_last=windows is not None and windows.accumulation == "retracting",
    )
    if process is None:
        return run
    if run.keeps_last and len(process.output) > 1:
        raise PlacedSpecError.at(
            build.pipeline.source,
            "windows.accumulation",
            "retracting needs a function with one output column, because a retraction takes back one value; "
            f"process.output has {len(process.output)} columns; use aggregates, or one output column",
        )
    return replace(
        run,
        outputs=dict(process.output),
        side_outputs={tag: dict(columns) for tag, columns in process.side_outputs.items()},
        keeps_user_state=bool(process.state or process.window_state),
    )


def _running_state(run: Engine, process: ProcessGrammar | None) -> dict[str, Columns]:
    """Return the state column of a user's aggregate. Its name is that of the first output column."""
    operator = run.operator
    is_users = isinstance(operator, WindowSpec) and isinstance(operator.effective_function(), Whole)
    return {next(iter(process.output)): JSON_STATE} if process is not None and is_users else {}


def _function(build: Build, aggregates: Mapping[str, Aggregate]) -> WindowFunction | KeyedProcessFunction:
    """Return the function of the windows or, without windows, the keyed function."""
    process, path = build.pipeline.process, "process.function"
    if process is None:
        return Aggregates(tuple(aggregates.values()))
    state = _states(process.state)
    with naming(build.pipeline.source, "process"):
        users = _users_aggregate(build, process, path)
        if users is not None:
            return Whole(users, columns=tuple(process.output))
        if build.pipeline.windows is None:
            keyed = build.instance(process.function, KeyedProcessFunction, path)
            missing = build.missing + (NO_WATERMARK if build.pipeline.watermark is None else ())
            return DeclaredKeyedProcess(inner=keyed, state=state, missing=missing)
        then = DeclaredProcess(
            inner=_window_function(build, process, path),
            shown=_shown(build, process),
            state=state,
            window_state=_states(process.window_state),
            names=tuple(aggregates),
            missing=build.missing,
        )
    return Aggregates(tuple(aggregates.values()), then=then) if aggregates else then


def _users_aggregate(build: Build, process: ProcessGrammar, path: str) -> DeclaredReduce | DeclaredAggregate | None:
    """Return the user's reduce, fold or aggregate; None if the file names another kind of function."""
    function = build.functions.load(process.function, path)
    if not isinstance(function, Reduce | UserAggregate):
        return None
    wrong = [key for key in ("state", "window_state", "side_outputs") if getattr(process, key)]
    if build.pipeline.windows is None or build.pipeline.aggregates or wrong:
        what = wrong[0] if wrong else ("no windows" if build.pipeline.windows is None else "aggregates")
        raise SpecError(
            f"{process.function.name} is a {type(function).__name__}, which needs windows and allows no aggregates, "
            f"state, window_state or side_outputs: found {what}; use a ProcessFunction instead"
        )
    return declared_aggregate(function, _shown(build, process))


def _shown(build: Build, process: ProcessGrammar) -> ColumnsOf:
    # A record's value also has the columns that triggers and evictors read. A function with `columns` gets only those.
    return build.layout.shown_to(process.function) if process.function.columns else ColumnsOf()


def _window_function(build: Build, process: ProcessGrammar, path: str) -> ProcessFunction:
    function = build.functions.load(process.function, path)
    if callable(function) and not isinstance(function, type | ProcessFunction):
        return Apply(build.function(process.function, path, "key, window, records"))
    return build.instance(process.function, ProcessFunction, path)


def _states(declared: Mapping[str, StateGrammar]) -> tuple[StateSpec, ...]:
    return tuple(StateSpec(name=name, kind=grammar.kind, type=grammar.type) for name, grammar in declared.items())


def _windows(windows: WindowsGrammar, build: Build, function: WindowFunction) -> WindowSpec:
    answers = profile(build.pipeline.semantics)
    if windows.count is not None:
        return count_windows(windows.count.size, slide=windows.count.slide, function=function, profile=answers)
    spec = WindowSpec(
        assigner=_assigner(windows, build),
        function=function,
        trigger=None if windows.trigger is None else trigger(windows.trigger, build, "windows.trigger"),
        evictor=None if windows.evictor is None else evictor(windows.evictor, build, "windows.evictor"),
        allowed_lateness_ms=windows.allowed_lateness_ms,
        accumulation=windows.accumulation,
        timestamp_combiner=windows.timestamp_combiner,
        leftovers=windows.leftovers,
        profile=answers,
    )
    spec.check_terminates()
    return spec


def _assigner(windows: WindowsGrammar, build: Build) -> assigners.Assigner:
    grammar, is_event_time = windows.assigner, windows.time == "event"
    match grammar:
        case Tumbling():
            stagger = grammar.stagger
            return assigners.Tumbling(
                size_ms=grammar.size_ms,
                offset_ms=grammar.offset_ms,
                is_event_time=is_event_time,
                stagger=assigners.Stagger.RANDOM if stagger.random else assigners.Stagger(stagger.by),
                seed=stagger.random.seed if stagger.random else 0,
            )
        case Sliding():
            return assigners.Sliding(
                size_ms=grammar.size_ms,
                slide_ms=grammar.slide_ms,
                offset_ms=grammar.offset_ms,
                is_event_time=is_event_time,
            )
        case Session():
            return _sessions(grammar.gap, build, "windows.session.gap", is_event_time=is_event_time)
        case DynamicSession():
            return _sessions(grammar.gap, build, "windows.dynamic_session.gap", is_event_time=is_event_time)
        case Nothing():
            return assigners.Global()
        case CountWindow() | None:
            raise AssertionError("count windows, Storm's and Atlas's are built before")
        case _:
            assert_never(grammar)


def _sessions(gap: GapGrammar, build: Build, path: str, *, is_event_time: bool) -> assigners.Assigner:
    if gap.fixed_ms is not None:
        return assigners.Session(gap_ms=gap.fixed_ms, is_event_time=is_event_time)
    if gap.column is not None:
        unit = "ms" if gap.unit is None else gap.unit.value
        column = GapOfColumn(place=build.layout.place(gap.column), unit=unit)
        return assigners.DynamicSession(gap=column, is_event_time=is_event_time)
    assert gap.function is not None, "the grammar requires one of the three"
    function = build.function(gap.function, f"{path}.function", "columns")
    users = GapOfFunction(function=function, columns=build.layout.shown_to(gap.function))
    return assigners.DynamicSession(gap=users, is_event_time=is_event_time)
