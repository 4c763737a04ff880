"""Users' functions that raise or end the program: the error names file and line, in the driver and in a worker."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from pyspark.errors import PySparkPicklingError

from jobs.engine.user_errors import explained
from jobs.engine.user_functions import Functions
from jobs.pipeline.files import load_file, load_pipeline
from jobs.pipeline.models.pipeline import Pipeline
from tests.support.grammar import document
from tests.support.places import ROOT
from windowlib.errors import CheckpointError, RequestError, SpecError, StoreError

MODULE = """
import sys
from my_bad_helpers import fail

class MyError(Exception):
    pass

def raises(columns):
    raise MyError("two" + chr(10) + "lines")

def exits(columns):
    sys.exit(0)

def helped(columns):
    return fail()

def ours(columns):
    raise KeyError(1)
"""
WORKER = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/somewhere/windowlib/windows/assigners.py", line 251, in _gap_ms
    gap_ms = self.gap(record)
             ^^^^^^^^^^^^^^^^
  File "{file}", line 9, in raises
    raise MyError("two" + chr(10) + "lines")
    ^^^^^^^^^^^^^^^^^^^^
my_bad.MyError: two
lines
 SQLSTATE: 38000
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:665)
"""
NOT_SENT = "ModuleNotFoundError: No module named 'my_bad_helpers'"


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    (tmp_path / "my_bad.py").write_text(MODULE)
    (tmp_path / "my_bad_helpers.py").write_text("def fail():\n    return 1 / 0\n")
    path = tmp_path / "sample.yaml"
    path.write_text(yaml.safe_dump(document(windows={"session": {"gap": {"function": "my_bad:raises"}}})))
    before = set(sys.modules)
    yield load_file(path)
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("raises", "raised MyError: two\nlines ({dir}/my_bad.py, line 9, in raises). Correct it"),
        ("exits", "called sys.exit: 0 ({dir}/my_bad.py, line 12, in exits). Correct it"),
        ("helped", "raised ZeroDivisionError: division by zero ({dir}/my_bad_helpers.py, line 2, in fail). Correct it"),
    ],
)
def test_an_error_in_the_driver_names_file_and_line(
    pipeline: Pipeline, tmp_path: Path, name: str, message: str
) -> None:
    module = pipeline.functions()[0].model_copy(update={"name": f"my_bad:{name}"})
    function = Functions(source=pipeline.source, directory=pipeline.functions_dir).load(module, "gap")
    assert callable(function)
    with pytest.raises(SpecError) as caught, explained(pipeline):
        function({})
    assert message.format(dir=tmp_path) in str(caught.value)
    assert str(caught.value).startswith(f"{pipeline.source}: a function of yours ")


def test_an_error_in_a_worker_names_file_and_line(pipeline: Pipeline, tmp_path: Path) -> None:
    text = WORKER.format(file=tmp_path / "my_bad.py")
    with (
        pytest.raises(SpecError, match=r"raised MyError: two\nlines \(.*my_bad\.py, line 9, in raises\)"),
        explained(pipeline),
    ):
        raise RuntimeError(text)
    exits = text.partition(" SQLSTATE")[0].replace(
        "my_bad.MyError: two\nlines", "SystemExit: 0"
    )  # without the JVM's part
    with pytest.raises(SpecError, match=r"called sys\.exit: 0"), explained(pipeline):
        raise RuntimeError(exits)


def test_an_error_of_windowlib_in_a_worker_keeps_its_class_and_message(pipeline: Pipeline) -> None:
    text = WORKER.format(file="/x.py").replace(
        "my_bad.MyError: two\nlines", "windowlib.errors.CheckpointError: damaged: x"
    )
    with pytest.raises(CheckpointError, match=r"^damaged: x$"), explained(pipeline):
        raise RuntimeError(text)


def test_an_error_of_windowlib_in_a_function_names_the_pipeline_file(pipeline: Pipeline) -> None:
    names = pytest.raises(SpecError, match=rf"^{pipeline.source}: a function of yours uses ctx\.x$")
    with names, explained(pipeline), explained(pipeline):
        raise SpecError("a function of yours uses ctx.x")


def test_if_a_worker_died_the_error_names_the_functions(pipeline: Pipeline) -> None:
    with pytest.raises(RequestError, match=r"my_bad:raises.*too little memory"), explained(pipeline):
        raise RuntimeError("Caused by: java.io.EOFException\n\tat java.base")


@pytest.mark.parametrize(
    "error",
    [
        PySparkPicklingError("Could not serialize object: TypeError: cannot pickle '_thread.lock' object"),
        RuntimeError(WORKER.format(file="/x.py").replace("my_bad.MyError: two\nlines", NOT_SENT)),
    ],
    ids=["driver", "worker"],
)
def test_a_module_that_cannot_be_sent_to_the_workers_is_told(pipeline: Pipeline, error: Exception) -> None:
    words = r"\(my_bad:raises\).* cannot be sent to Spark's workers: .*(lock|my_bad_helpers).* inside the function"
    with pytest.raises(SpecError, match=words), explained(pipeline):
        raise error


def test_an_error_outside_of_users_functions_is_not_changed(pipeline: Pipeline) -> None:
    for error in (
        RuntimeError("x"),
        ModuleNotFoundError("No module named 'other'"),
        RuntimeError(WORKER.format(file="/x.py")),
        SystemExit(3),
        LookupError(),
        CheckpointError("c"),
    ):
        with pytest.raises(type(error)) as caught, explained(pipeline):
            raise error
        assert caught.value is error


class Py4JNetworkError(Exception):
    __module__ = "py4j.protocol"


class Py4JJavaError(Exception):
    __module__ = "py4j.protocol"


PLAIN = load_pipeline("flights", ROOT / "pipelines")


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (Py4JNetworkError("Answer from Java side is empty"), RequestError, "Spark's JVM ended during the replay"),
        (
            Py4JJavaError("SparkException: Python worker exited unexpectedly (crashed)"),
            RequestError,
            "a Python worker of Spark ended without an error. Either it was killed, or",
        ),
        (
            Py4JJavaError("java.io.IOException: No space left on device"),
            StoreError,
            "Spark could not write: No space left on device. Free space on that disk, and run the same command again",
        ),
        (
            Py4JJavaError(WORKER.replace("my_bad.MyError: two", "OSError: [Errno 122] Disk quota exceeded: '/lake/a'")),
            StoreError,
            "Spark could not write: Disk quota exceeded. Free space there or raise the quota",
        ),
        (
            Py4JJavaError('java.io.IOException: Cannot run program "/a/python": error=13, Permission denied'),
            RequestError,
            "Spark could not start its workers with /a/python: Permission denied. Unset PYSPARK_PYTHON, or set it to a",
        ),
        (
            Py4JJavaError('java.io.IOException: Cannot run program "python3": error=12, Cannot allocate memory'),
            StoreError,
            "Cannot allocate memory. Give the process more memory",
        ),
        (
            Py4JJavaError(
                "EOFException occurred while reading the port number from jobs.replay.worker_daemon's stdout"
            ),
            RequestError,
            "Spark could not start its workers with python9: it ended at once, and printed the reason above. Unset PYS",
        ),
    ],
)
def test_the_end_of_spark_and_a_full_disk_are_no_bug(
    error: Exception, kind: type[Exception], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "python9")
    with pytest.raises(kind) as caught, explained(PLAIN):
        raise error
    assert words in str(caught.value)


def test_a_full_disk_of_another_library_is_told_elsewhere() -> None:
    with pytest.raises(OSError, match="No space left"), explained(PLAIN):
        raise OSError(28, "No space left on device")
