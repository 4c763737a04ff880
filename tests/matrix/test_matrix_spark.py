"""The matrix through Spark: committed rows of all tables and the published view, as one chunk and cut.

One session and one small log serve all pipelines; a replay of it takes Spark two seconds. `make soak` plays the first
pipelines of each family's covering array, `make test` a few of them.
"""

import random
from collections.abc import Mapping

import pytest

from tests.matrix.log import sensor_log
from tests.matrix.pipelines import Case, sample
from tests.matrix.spark_replays import SparkLog, disagreement, write_log
from tests.support.fuzzing import first_seed
from tests.support.spark_session import SparkSession

pytestmark = pytest.mark.spark

FEW: Mapping[str, int] = {"windows": 1, "storm": 1}
MANY: Mapping[str, int] = {"windows": 40, "counted": 30, "simple": 8, "process": 8, "storm": 12, "atlas": 10}
"""How many pipelines of each family."""
SHOWN = 5


@pytest.fixture(scope="module")
def log(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SparkLog:
    seed = first_seed()
    [plain] = sample(seed, {"process": 1})
    commits = sensor_log(random.Random(seed), records_per_hour=40)
    return write_log(spark, tmp_path_factory.mktemp("matrix"), commits, plain.pipeline)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_few_pipelines(log: SparkLog) -> None:
    """Each in one chunk or cut in two; either way the answer is that of one process, which is never cut."""
    for number, case in enumerate(sample(first_seed(), FEW)):
        found = disagreement(case, log, name=f"few_{number}", chunks=[None, 2][number % 2 :][:1])
        assert found is None, f"{found}\n{case}"


@pytest.mark.soak
@pytest.mark.timeout(7_200)
def test_many_pipelines(log: SparkLog, capsys: pytest.CaptureFixture[str]) -> None:
    cases = sample(first_seed(), MANY)
    differ = list[tuple[Case, str]]()
    for number, case in enumerate(cases):
        cut = (1, 2, 3)[number % 3]
        found = disagreement(case, log, name=f"many_{number}", chunks=(None, cut))
        differ += [] if found is None else [(case, found)]
    text = f"matrix through Spark, HINDCAST_SEED={first_seed()}: {len(cases)} pipelines, each in one chunk and cut"
    with capsys.disabled():
        print(f"\n{text}")  # noqa: T201 - how much was tried is what the soak test is read for
    texts = [f"{found}\n{case}" for case, found in differ[:SHOWN]]
    assert not differ, f"{len(differ)} of {len(cases)} pipelines differ:\n\n" + "\n\n".join(texts)
