"""The public names of windowlib: which they are, and that type checkers and programs find them."""

import ast
import inspect
import re
import subprocess
import sys
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import pytest

import windowlib

# The list is literal so that adding or removing a public name is a decision.
NAMES = """
    Advanced AfterAll AfterAny AfterCount AfterEach AfterProcessingTime AfterWatermark Aggregate Aggregates Apply
    Arrival Assigner AssignerContext AssignerSource AssignerWithPeriodicWatermarks AssignerWithPunctuatedWatermarks
    AtlasProfile AtlasSpec AuditError BEAM BeamAlways BeamDefault BeamNever Bounded CONTINUE CheckpointError
    ClockStep CombinedWatermark Composite ContinuousEventTime ContinuousProcessingTime CountEviction CountLength
    CountReached CountTrigger DeltaExceeded DynamicSession EmitEveryRecord EmitPeriodically EmitWithCommits Emitted
    EndOfStream EngineFault EventTime Evictor EvictorContext FINISH FIRE FIRE_AND_PURGE FLINK Fate GLOBAL_WINDOW
    Generator GeneratorState Global GlobalWindow Harness HindcastError IngestionSpec InvariantBroken KeepClose
    KeepCount KeepRecent KeyContext KeyedProcessFunction KeyedProcessSpec LIST Late LedgerError ListState LogError
    MAX_TIME_MS MIN_TIME_MS MONGODB MapState Never Operator OperatorSpec OrFinally Output PURGE Pane Periodic
    ProcessContext ProcessFunction ProcessingTime ProcessingTimeout Profile Punctuated Purging RangeError Record
    RecordStep Reduce Repeatedly RequestError STORM STRICT Session SideOutput Sliding Snapshot SourceContext
    SourceRow SourcesSpec SpecError Stagger StateSpec StatusChanged StoreError Stored StormProfile StormSpec Tally
    TimeDriver TimeEviction TimeLength TimeTrigger TimeWindow Timeline Trigger TriggerContext TriggerResult Tumbling
    Unassigned UpstreamSource UserAggregate ValueState Valve WatermarkCountEviction WatermarkCountTrigger
    WatermarkSource WatermarkStep WatermarkTimeEviction WatermarkTimeTrigger Whole Window WindowFunction
    WindowOperator WindowSpec aggregate ascending check_assigner check_evictor check_function check_operator
    check_resumable check_trigger count_windows fold profile source_context typical_steps
"""
PUBLIC = NAMES.split()
DEFINED: dict[str, tuple[str, str]] = vars(windowlib)["_public_names"]()


def test_the_public_names_are_those_of_this_list() -> None:
    assert vars(windowlib)["__getattr__"]("__all__") == PUBLIC


def test_type_checkers_see_each_name_of_the_stub() -> None:
    """They take an import of a stub for a public name only if it is renamed to itself (PEP 484)."""
    stub = ast.parse(Path(windowlib.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [alias for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert {alias.asname or "" for alias in imports if alias.asname != alias.name} <= {"_Always", "_Default", "_Never"}


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_is_the_object_of_its_defining_module(name: str) -> None:
    module = import_module(DEFINED[name][0])
    found = getattr(windowlib, name)
    assert found is getattr(module, DEFINED[name][1])
    if inspect.isclass(found) or inspect.isfunction(found):
        assert found.__module__ == module.__name__, f"{name} is re-exported by {module.__name__}"


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_has_a_docstring(name: str) -> None:
    found = getattr(windowlib, name)
    if inspect.isclass(found) or inspect.isfunction(found):
        text = found.__doc__ or ""
        assert text
        assert not text.startswith(f"{found.__name__}("), "dataclass and NamedTuple generate this text"
    else:
        assert DEFINED[name][1] in _documented_assignments(DEFINED[name][0])


def _documented_assignments(module: str) -> set[str]:
    """Return the names that a module assigns and describes in a string below the assignment."""
    body = ast.parse(inspect.getsource(import_module(module))).body
    names = set()
    for node, following in pairwise(body):
        is_text = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if is_text and isinstance(target, ast.Name):
            names.add(target.id)
    return names


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'windowlib' has no attribute 'Tumblin'"):
        getattr(windowlib, "Tumblin")  # noqa: B009 - mypy would refuse the attribute


def test_dir_lists_every_public_name() -> None:
    assert set(PUBLIC) <= set(dir(windowlib))


def test_importing_the_errors_loads_no_other_module_of_windowlib() -> None:
    code = "import sys, windowlib.errors; print(*sorted(m for m in sys.modules if m.startswith('windowlib')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["windowlib", "windowlib.errors"]


def test_no_module_of_hindcast_imports_from_the_package() -> None:
    """It would read the stub: 9 ms in each command. Defect: `run` did, for a submodule."""
    root = Path(windowlib.__file__).parents[1]
    modules = [path for package in ("expectations", "jobs", "windowlib") for path in (root / package).rglob("*.py")]
    imports = re.compile(r"^\s*from windowlib import ", re.MULTILINE)
    assert [path.name for path in modules if imports.search(path.read_text("utf-8"))] == []
