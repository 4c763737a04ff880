"""Engines for the windows of Apache Storm and MongoDB Atlas in a pipeline file."""

from jobs.engine.build import Build
from jobs.engine.engine import Engine, TimeSpec
from jobs.engine.placed_errors import naming
from jobs.pipeline.models.atlas import AtlasGrammar
from jobs.pipeline.models.storm import StormGrammar, StormLength
from windowlib.atlas.dead_letters import DeadLetterWriter
from windowlib.atlas.policies import ATLAS_PROFILES
from windowlib.atlas.spec import OUTPUT_COLUMNS, SIDE_OUTPUT_COLUMNS, AtlasSpec
from windowlib.functions.window_functions import WindowFunction
from windowlib.keyed.process_operator import KeyedProcessFunction
from windowlib.storm.profiles import storm_profile
from windowlib.storm.spec import CountLength, Length, StormSpec, TimeLength


def storm_engine(grammar: StormGrammar, build: Build, function: WindowFunction | KeyedProcessFunction) -> Engine:
    """Return the Engine of Storm's windows, which compute the same `function` as other windows.

    Raises SpecError: the parts do not fit together, or exceed Storm's limits; the message names the file.
    """
    assert not isinstance(function, KeyedProcessFunction), "the pipeline has windows"
    streams = grammar.streams
    with naming(build.pipeline.source, "windows.storm"):
        spec = StormSpec(
            length=_length(grammar.length),
            slide=_length(grammar.slide),
            function=function,
            is_event_time=grammar.time == "event",
            expected=() if streams is None else (streams.expected or ()),
            lag_ms=grammar.lag_ms,
            watermark_interval_ms=grammar.watermark_interval_ms,
            late=grammar.late,
            message_timeout_ms=grammar.message_timeout_ms,
            max_spout_pending=grammar.max_spout_pending,
            profile=storm_profile(build.pipeline.semantics),
        )
        spec.check_terminates()
    source = None if streams is None else streams.column
    time = TimeSpec(driver=spec.driver, source=source, needs_every_record=False)
    return Engine(operator=spec, time=time, layout=build.layout.built(), outputs={}, accumulators={})


def _length(grammar: StormLength) -> Length:
    return CountLength(grammar.count) if grammar.count is not None else TimeLength(grammar.ms or 0)


def atlas_engine(grammar: AtlasGrammar, build: Build) -> Engine:
    """Return the Engine of an Atlas window stage, which reads whole records and emits documents.

    Raises SpecError: the stage is not valid or does not fit the log; the message names the file and the path.
    """
    with naming(build.pipeline.source, "windows.atlas"):
        spec = AtlasSpec.parse(
            grammar.stage,
            columns=build.columns,
            source=grammar.source,
            profile=ATLAS_PROFILES[build.pipeline.semantics],
            letters=DeadLetterWriter(processor_name=build.pipeline.name),
        )
    return Engine(
        operator=spec,
        time=TimeSpec(
            driver=spec.driver,
            bound_ms=spec.bound_ms,
            source=grammar.partition,
            needs_every_record=spec.bound_ms is None,
        ),
        layout=build.layout.built(),
        outputs=dict(OUTPUT_COLUMNS),
        accumulators={},
        side_outputs={tag: dict(columns) for tag, columns in SIDE_OUTPUT_COLUMNS.items()},
        needs_clock=spec.needs_clock,
    )
