"""Windows over event time in pure Python: assigners, triggers, evictors, functions, timers, watermarks, one operator.

The library reads no clock and does no I/O. Start with `WindowSpec`.
docs/reference/conformance.md lists what agrees with which engine.
docs/reference/checkpoints.md describes the stored state.

This module exports the names that users import (`from windowlib import Tumbling`). Each name is imported on first
access (PEP 562), so `import windowlib.errors` loads nothing else. Modules of Hindcast import from the defining module.
To add or remove a public name, change the imports, `_DEFINED_IN` and `__all__` here, and the list in
tests/windowlib/test_public_names.py, which compares them.
"""

# A type checker takes this name as true. `typing.TYPE_CHECKING` would make every process import `typing` here (3 ms).
TYPE_CHECKING = False

if TYPE_CHECKING:
    from windowlib.atlas.policies import MONGODB, AtlasProfile
    from windowlib.atlas.spec import AtlasSpec
    from windowlib.beam.combinators import AfterAll, AfterAny, AfterEach, AfterWatermark, OrFinally, Repeatedly
    from windowlib.beam.composite import Composite
    from windowlib.beam.conditions import AfterCount, AfterProcessingTime
    from windowlib.beam.conditions import Always as BeamAlways
    from windowlib.beam.conditions import Default as BeamDefault
    from windowlib.beam.conditions import Never as BeamNever
    from windowlib.bounds import GLOBAL_WINDOW, MAX_TIME_MS, MIN_TIME_MS, GlobalWindow, TimeWindow, Window
    from windowlib.errors import (
        AuditError,
        CheckpointError,
        HindcastError,
        InvariantBroken,
        LedgerError,
        LogError,
        RangeError,
        RequestError,
        SpecError,
        StoreError,
    )
    from windowlib.functions.aggregates import Aggregate
    from windowlib.functions.window_functions import (
        Aggregates,
        Apply,
        ProcessContext,
        ProcessFunction,
        Reduce,
        UserAggregate,
        Whole,
        WindowFunction,
        aggregate,
        fold,
    )
    from windowlib.keyed.operator_protocol import Operator, OperatorSpec
    from windowlib.keyed.process_operator import KeyContext, KeyedProcessFunction
    from windowlib.keyed.snapshots import Snapshot
    from windowlib.keyed.state import ListState, MapState, StateSpec, ValueState
    from windowlib.profiles import BEAM, FLINK, STRICT, EngineFault, Profile, profile
    from windowlib.records.records import (
        Emitted,
        Fate,
        Late,
        Output,
        Pane,
        Record,
        SideOutput,
        Stored,
        Tally,
        Unassigned,
    )
    from windowlib.storm.policies import (
        CountEviction,
        CountTrigger,
        TimeEviction,
        TimeTrigger,
        WatermarkCountEviction,
        WatermarkCountTrigger,
        WatermarkTimeEviction,
        WatermarkTimeTrigger,
    )
    from windowlib.storm.profiles import STORM, StormProfile
    from windowlib.storm.spec import CountLength, StormSpec, TimeLength
    from windowlib.testkit.contracts import (
        LIST,
        check_assigner,
        check_evictor,
        check_function,
        check_operator,
        check_trigger,
        typical_steps,
    )
    from windowlib.testkit.harness import ClockStep, Harness, RecordStep, WatermarkStep, check_resumable
    from windowlib.triggers.flink import (
        ContinuousEventTime,
        ContinuousProcessingTime,
        CountReached,
        DeltaExceeded,
        EndOfStream,
        EventTime,
        Never,
        ProcessingTime,
    )
    from windowlib.triggers.protocol import (
        CONTINUE,
        FINISH,
        FIRE,
        FIRE_AND_PURGE,
        PURGE,
        Trigger,
        TriggerContext,
        TriggerResult,
    )
    from windowlib.triggers.wrappers import ProcessingTimeout, Purging
    from windowlib.watermarks.adapters import (
        AssignerSource,
        AssignerWithPeriodicWatermarks,
        AssignerWithPunctuatedWatermarks,
        SourceContext,
        UpstreamSource,
        source_context,
    )
    from windowlib.watermarks.generators import (
        Bounded,
        EmitEveryRecord,
        EmitPeriodically,
        Generator,
        GeneratorState,
        Periodic,
        Punctuated,
        WatermarkSource,
        ascending,
    )
    from windowlib.watermarks.ingestion_driver import IngestionSpec
    from windowlib.watermarks.sources_driver import EmitWithCommits, SourcesSpec
    from windowlib.watermarks.timeline import Arrival, SourceRow, TimeDriver, Timeline
    from windowlib.watermarks.valve import Advanced, CombinedWatermark, StatusChanged, Valve
    from windowlib.windows.assigners import (
        Assigner,
        AssignerContext,
        DynamicSession,
        Global,
        Session,
        Sliding,
        Stagger,
        Tumbling,
    )
    from windowlib.windows.declared_functions import KeyedProcessSpec
    from windowlib.windows.evictors import Evictor, EvictorContext, KeepClose, KeepCount, KeepRecent
    from windowlib.windows.spec import WindowSpec, count_windows
    from windowlib.windows.window_operator import WindowOperator

_DEFINED_IN = {
    "windowlib.atlas.policies": "MONGODB AtlasProfile",
    "windowlib.atlas.spec": "AtlasSpec",
    "windowlib.beam.combinators": "AfterAll AfterAny AfterEach AfterWatermark OrFinally Repeatedly",
    "windowlib.beam.composite": "Composite",
    "windowlib.beam.conditions": "AfterCount AfterProcessingTime BeamAlways BeamDefault BeamNever",
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

__all__ = [
    "BEAM",
    "CONTINUE",
    "FINISH",
    "FIRE",
    "FIRE_AND_PURGE",
    "FLINK",
    "GLOBAL_WINDOW",
    "LIST",
    "MAX_TIME_MS",
    "MIN_TIME_MS",
    "MONGODB",
    "PURGE",
    "STORM",
    "STRICT",
    "Advanced",
    "AfterAll",
    "AfterAny",
    "AfterCount",
    "AfterEach",
    "AfterProcessingTime",
    "AfterWatermark",
    "Aggregate",
    "Aggregates",
    "Apply",
    "Arrival",
    "Assigner",
    "AssignerContext",
    "AssignerSource",
    "AssignerWithPeriodicWatermarks",
    "AssignerWithPunctuatedWatermarks",
    "AtlasProfile",
    "AtlasSpec",
    "AuditError",
    "BeamAlways",
    "BeamDefault",
    "BeamNever",
    "Bounded",
    "CheckpointError",
    "ClockStep",
    "CombinedWatermark",
    "Composite",
    "ContinuousEventTime",
    "ContinuousProcessingTime",
    "CountEviction",
    "CountLength",
    "CountReached",
    "CountTrigger",
    "DeltaExceeded",
    "DynamicSession",
    "EmitEveryRecord",
    "EmitPeriodically",
    "EmitWithCommits",
    "Emitted",
    "EndOfStream",
    "EngineFault",
    "EventTime",
    "Evictor",
    "EvictorContext",
    "Fate",
    "Generator",
    "GeneratorState",
    "Global",
    "GlobalWindow",
    "Harness",
    "HindcastError",
    "IngestionSpec",
    "InvariantBroken",
    "KeepClose",
    "KeepCount",
    "KeepRecent",
    "KeyContext",
    "KeyedProcessFunction",
    "KeyedProcessSpec",
    "Late",
    "LedgerError",
    "ListState",
    "LogError",
    "MapState",
    "Never",
    "Operator",
    "OperatorSpec",
    "OrFinally",
    "Output",
    "Pane",
    "Periodic",
    "ProcessContext",
    "ProcessFunction",
    "ProcessingTime",
    "ProcessingTimeout",
    "Profile",
    "Punctuated",
    "Purging",
    "RangeError",
    "Record",
    "RecordStep",
    "Reduce",
    "Repeatedly",
    "RequestError",
    "Session",
    "SideOutput",
    "Sliding",
    "Snapshot",
    "SourceContext",
    "SourceRow",
    "SourcesSpec",
    "SpecError",
    "Stagger",
    "StateSpec",
    "StatusChanged",
    "StoreError",
    "Stored",
    "StormProfile",
    "StormSpec",
    "Tally",
    "TimeDriver",
    "TimeEviction",
    "TimeLength",
    "TimeTrigger",
    "TimeWindow",
    "Timeline",
    "Trigger",
    "TriggerContext",
    "TriggerResult",
    "Tumbling",
    "Unassigned",
    "UpstreamSource",
    "UserAggregate",
    "ValueState",
    "Valve",
    "WatermarkCountEviction",
    "WatermarkCountTrigger",
    "WatermarkSource",
    "WatermarkStep",
    "WatermarkTimeEviction",
    "WatermarkTimeTrigger",
    "Whole",
    "Window",
    "WindowFunction",
    "WindowOperator",
    "WindowSpec",
    "aggregate",
    "ascending",
    "check_assigner",
    "check_evictor",
    "check_function",
    "check_operator",
    "check_resumable",
    "check_trigger",
    "count_windows",
    "fold",
    "profile",
    "source_context",
    "typical_steps",
]


# Hidden from mypy: with a module-level `__getattr__` it would accept any misspelled name.
if not TYPE_CHECKING:

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
    return sorted({*globals(), *__all__})
