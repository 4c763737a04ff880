"""The public names of windowlib, for type checkers and for `windowlib/__init__.py`, which finds them here."""

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
