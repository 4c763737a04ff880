"""Windows over event time in pure Python: assigners, triggers, evictors, functions, timers, watermarks, one operator.

The library reads no clock and does no I/O. Start with `WindowSpec`.
docs/reference/conformance.md lists what agrees with which engine.
docs/reference/checkpoints.md describes the stored state.

This module exports the names that users import (`from windowlib import Tumbling`). Each name is imported on first
access (PEP 562), so `import windowlib.errors` loads nothing else. Modules of Hindcast import from the defining module.
To add or remove a public name, change the imports and `_DEFINED_IN` here, and the list in
tests/windowlib/test_public_names.py, which compares them.
"""

# A type checker takes this name as true. `typing.TYPE_CHECKING` would make every process import `typing` here (3 ms).
TYPE_CHECKING = False

if TYPE_CHECKING:
    from windowlib.atlas.policies import MONGODB as MONGODB, AtlasProfile as AtlasProfile
    from windowlib.atlas.spec import AtlasSpec as AtlasSpec
    from windowlib.beam.combinators import (
        AfterAll as AfterAll,
        AfterAny as AfterAny,
        AfterCount as AfterCount,
        AfterEach as AfterEach,
        AfterProcessingTime as AfterProcessingTime,
        AfterWatermark as AfterWatermark,
        Always as _Always,
        Default as _Default,
        Never as _Never,
        OrFinally as OrFinally,
        Repeatedly as Repeatedly,
    )
    from windowlib.beam.composite import Composite as Composite
    from windowlib.bounds import (
        GLOBAL_WINDOW as GLOBAL_WINDOW,
        MAX_TIME_MS as MAX_TIME_MS,
        MIN_TIME_MS as MIN_TIME_MS,
        GlobalWindow as GlobalWindow,
        TimeWindow as TimeWindow,
        Window as Window,
    )
    from windowlib.errors import (
        AuditError as AuditError,
        CheckpointError as CheckpointError,
        HindcastError as HindcastError,
        InvariantBroken as InvariantBroken,
        LedgerError as LedgerError,
        LogError as LogError,
        RangeError as RangeError,
        RequestError as RequestError,
        SpecError as SpecError,
        StoreError as StoreError,
    )
    from windowlib.functions.aggregates import Aggregate as Aggregate
    from windowlib.functions.window_functions import (
        Aggregates as Aggregates,
        Apply as Apply,
        ProcessContext as ProcessContext,
        ProcessFunction as ProcessFunction,
        Reduce as Reduce,
        UserAggregate as UserAggregate,
        Whole as Whole,
        WindowFunction as WindowFunction,
        aggregate as aggregate,
        fold as fold,
    )
    from windowlib.keyed.operator_protocol import Operator as Operator, OperatorSpec as OperatorSpec
    from windowlib.keyed.process_operator import KeyContext as KeyContext, KeyedProcessFunction as KeyedProcessFunction
    from windowlib.keyed.snapshots import Snapshot as Snapshot
    from windowlib.keyed.state import (
        ListState as ListState,
        MapState as MapState,
        StateSpec as StateSpec,
        ValueState as ValueState,
    )
    from windowlib.profiles import (
        BEAM as BEAM,
        FLINK as FLINK,
        STRICT as STRICT,
        EngineFault as EngineFault,
        Profile as Profile,
        profile as profile,
    )
    from windowlib.records.records import (
        Emitted as Emitted,
        Fate as Fate,
        Late as Late,
        Output as Output,
        Pane as Pane,
        Record as Record,
        SideOutput as SideOutput,
        Stored as Stored,
        Tally as Tally,
        Unassigned as Unassigned,
    )
    from windowlib.storm.policies import (
        CountEviction as CountEviction,
        CountTrigger as CountTrigger,
        TimeEviction as TimeEviction,
        TimeTrigger as TimeTrigger,
        WatermarkCountEviction as WatermarkCountEviction,
        WatermarkCountTrigger as WatermarkCountTrigger,
        WatermarkTimeEviction as WatermarkTimeEviction,
        WatermarkTimeTrigger as WatermarkTimeTrigger,
    )
    from windowlib.storm.profiles import STORM as STORM, StormProfile as StormProfile
    from windowlib.storm.spec import CountLength as CountLength, StormSpec as StormSpec, TimeLength as TimeLength
    from windowlib.testkit.contracts import (
        LIST as LIST,
        check_assigner as check_assigner,
        check_evictor as check_evictor,
        check_function as check_function,
        check_operator as check_operator,
        check_trigger as check_trigger,
        typical_steps as typical_steps,
    )
    from windowlib.testkit.harness import (
        ClockStep as ClockStep,
        Harness as Harness,
        RecordStep as RecordStep,
        WatermarkStep as WatermarkStep,
        check_resumable as check_resumable,
    )
    from windowlib.triggers.flink import (
        ContinuousEventTime as ContinuousEventTime,
        ContinuousProcessingTime as ContinuousProcessingTime,
        CountReached as CountReached,
        DeltaExceeded as DeltaExceeded,
        EndOfStream as EndOfStream,
        EventTime as EventTime,
        Never as Never,
        ProcessingTime as ProcessingTime,
    )
    from windowlib.triggers.protocol import (
        CONTINUE as CONTINUE,
        FINISH as FINISH,
        FIRE as FIRE,
        FIRE_AND_PURGE as FIRE_AND_PURGE,
        PURGE as PURGE,
        Trigger as Trigger,
        TriggerContext as TriggerContext,
        TriggerResult as TriggerResult,
    )
    from windowlib.triggers.wrappers import ProcessingTimeout as ProcessingTimeout, Purging as Purging
    from windowlib.watermarks.adapters import (
        AssignerSource as AssignerSource,
        AssignerWithPeriodicWatermarks as AssignerWithPeriodicWatermarks,
        AssignerWithPunctuatedWatermarks as AssignerWithPunctuatedWatermarks,
        SourceContext as SourceContext,
        UpstreamSource as UpstreamSource,
        source_context as source_context,
    )
    from windowlib.watermarks.generators import (
        Bounded as Bounded,
        EmitEveryRecord as EmitEveryRecord,
        EmitPeriodically as EmitPeriodically,
        Generator as Generator,
        GeneratorState as GeneratorState,
        Periodic as Periodic,
        Punctuated as Punctuated,
        WatermarkSource as WatermarkSource,
        ascending as ascending,
    )
    from windowlib.watermarks.ingestion_driver import IngestionSpec as IngestionSpec
    from windowlib.watermarks.sources_driver import EmitWithCommits as EmitWithCommits, SourcesSpec as SourcesSpec
    from windowlib.watermarks.timeline import (
        Arrival as Arrival,
        SourceRow as SourceRow,
        TimeDriver as TimeDriver,
        Timeline as Timeline,
    )
    from windowlib.watermarks.valve import (
        Advanced as Advanced,
        CombinedWatermark as CombinedWatermark,
        StatusChanged as StatusChanged,
        Valve as Valve,
    )
    from windowlib.windows.assigners import (
        Assigner as Assigner,
        AssignerContext as AssignerContext,
        DynamicSession as DynamicSession,
        Global as Global,
        Session as Session,
        Sliding as Sliding,
        Stagger as Stagger,
        Tumbling as Tumbling,
    )
    from windowlib.windows.declared_functions import KeyedProcessSpec as KeyedProcessSpec
    from windowlib.windows.evictors import (
        Evictor as Evictor,
        EvictorContext as EvictorContext,
        KeepClose as KeepClose,
        KeepCount as KeepCount,
        KeepRecent as KeepRecent,
    )
    from windowlib.windows.spec import WindowSpec as WindowSpec, count_windows as count_windows
    from windowlib.windows.window_operator import WindowOperator as WindowOperator

    BeamAlways = _Always
    BeamDefault = _Default
    BeamNever = _Never

_DEFINED_IN = {
    "windowlib.atlas.policies": "MONGODB AtlasProfile",
    "windowlib.atlas.spec": "AtlasSpec",
    "windowlib.beam.combinators": (
        "AfterAll AfterAny AfterCount AfterEach AfterProcessingTime AfterWatermark BeamAlways BeamDefault BeamNever "
        "OrFinally Repeatedly"
    ),
    "windowlib.beam.composite": "Composite",
    "windowlib.bounds": "GLOBAL_WINDOW MAX_TIME_MS MIN_TIME_MS GlobalWindow TimeWindow Window",
    "windowlib.errors": (
        "AuditError CheckpointError HindcastError InvariantBroken LedgerError LogError RangeError RequestError "
        "SpecError StoreError"
    ),
    "windowlib.functions.aggregates": "Aggregate",
    "windowlib.functions.window_functions": (
        "Aggregates Apply ProcessContext ProcessFunction Reduce UserAggregate Whole WindowFunction aggregate fold"
    ),
    "windowlib.keyed.operator_protocol": "Operator OperatorSpec",
    "windowlib.keyed.process_operator": "KeyContext KeyedProcessFunction",
    "windowlib.keyed.snapshots": "Snapshot",
    "windowlib.keyed.state": "ListState MapState StateSpec ValueState",
    "windowlib.profiles": "BEAM FLINK STRICT EngineFault Profile profile",
    "windowlib.records.records": "Emitted Fate Late Output Pane Record SideOutput Stored Tally Unassigned",
    "windowlib.storm.policies": (
        "CountEviction CountTrigger TimeEviction TimeTrigger WatermarkCountEviction WatermarkCountTrigger "
        "WatermarkTimeEviction WatermarkTimeTrigger"
    ),
    "windowlib.storm.profiles": "STORM StormProfile",
    "windowlib.storm.spec": "CountLength StormSpec TimeLength",
    "windowlib.testkit.contracts": (
        "LIST check_assigner check_evictor check_function check_operator check_trigger typical_steps"
    ),
    "windowlib.testkit.harness": "ClockStep Harness RecordStep WatermarkStep check_resumable",
    "windowlib.triggers.flink": (
        "ContinuousEventTime ContinuousProcessingTime CountReached DeltaExceeded EndOfStream EventTime Never "
        "ProcessingTime"
    ),
    "windowlib.triggers.protocol": "CONTINUE FINISH FIRE FIRE_AND_PURGE PURGE Trigger TriggerContext TriggerResult",
    "windowlib.triggers.wrappers": "ProcessingTimeout Purging",
    "windowlib.watermarks.adapters": (
        "AssignerSource AssignerWithPeriodicWatermarks AssignerWithPunctuatedWatermarks SourceContext "
        "UpstreamSource source_context"
    ),
    "windowlib.watermarks.generators": (
        "Bounded EmitEveryRecord EmitPeriodically Generator GeneratorState Periodic Punctuated WatermarkSource "
        "ascending"
    ),
    "windowlib.watermarks.ingestion_driver": "IngestionSpec",
    "windowlib.watermarks.sources_driver": "EmitWithCommits SourcesSpec",
    "windowlib.watermarks.timeline": "Arrival SourceRow TimeDriver Timeline",
    "windowlib.watermarks.valve": "Advanced CombinedWatermark StatusChanged Valve",
    "windowlib.windows.assigners": "Assigner AssignerContext DynamicSession Global Session Sliding Stagger Tumbling",
    "windowlib.windows.declared_functions": "KeyedProcessSpec",
    "windowlib.windows.evictors": "Evictor EvictorContext KeepClose KeepCount KeepRecent",
    "windowlib.windows.spec": "WindowSpec count_windows",
    "windowlib.windows.window_operator": "WindowOperator",
}
"""The public names, separated by spaces, by the module that defines them."""

_RENAMED = {"BeamAlways": "Always", "BeamDefault": "Default", "BeamNever": "Never"}
"""Public names that differ from the name in the defining module: Flink also has a trigger `Never`."""

_MODULE_OF = {name: module for module, names in _DEFINED_IN.items() for name in names.split()}


# Hidden from mypy: with a module-level `__getattr__` it would accept any misspelled name.
if not TYPE_CHECKING:
    __all__ = sorted(_MODULE_OF)

    def __getattr__(name: str) -> object:
        """Return a public name from its defining module and keep it here.

        Raises:
            AttributeError: the name is not public.
        """
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        member = getattr(import_module(_MODULE_OF[name]), _RENAMED.get(name, name))
        globals()[name] = member
        return member


def __dir__() -> list[str]:
    """Return the public names and the submodules that are loaded."""
    return sorted({*globals(), *_MODULE_OF})
