"""One command is killed, or gets an error, at each of its writes; then the same command runs again (laws L4 to L6).

`make test` plays three random kills and `make slow` some of each topology. `make soak` plays all points.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from random import Random

import pytest

from tests.support.fuzzing import first_seed
from tests.support.write_faults import COMPILER, ERRORS, KILLS, Fault, ForkServer, compiled
from tests.support.write_sweeps import Played, Point, Sweep
from tests.support.written_lakes import IN_SPARK, TOPOLOGIES, Topology

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler (cc, gcc or clang) on this machine")

BY_NAME = {topology.name: topology for topology in TOPOLOGIES}
IN_MAKE_TEST = 3
IN_MAKE_SLOW = 6
"""Points of each topology and kind of fault."""
IN_SPARK_POINTS = 3
Prepared = Callable[[Topology], Sweep]
of_each = pytest.mark.parametrize("topology", TOPOLOGIES, ids=[topology.name for topology in TOPOLOGIES])


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prepared]:
    """Prepare a topology, in a server of its own, once for all tests of the module."""
    root = tmp_path_factory.mktemp("writes")
    library = compiled(root)
    sweeps: dict[str, Sweep] = {}
    with ExitStack() as stack:

        def prepare(topology: Topology) -> Sweep:
            if topology.name not in sweeps:
                place = root / topology.name.replace(" ", "_")
                server = stack.enter_context(ForkServer(place / "server", library))
                sweeps[topology.name] = Sweep(topology, server, place).prepare()
            return sweeps[topology.name]

        yield prepare


def _play(sweep: Sweep, points: Iterable[Point]) -> None:
    """Play points, and print how many there were and how each disturbed command ended."""
    played = [sweep.play(point) for point in points]
    _tell(sweep, played)
    wrong = [str(one) for one in played if one.problems]
    assert not wrong, "\n\n".join([f"{len(wrong)} of {len(played)} points of {sweep.topology.name!r}:", *wrong])


def _tell(sweep: Sweep, played: Sequence[Played]) -> None:
    ends = {status: sum(each.ended.status == status for each in played) for status in (-9, 0, 1)}
    print(  # noqa: T201 - the numbers of docs/explanation/testing.md
        f"{sweep.topology.name}: N = {len(sweep.calls)}, {len(played)} points: {ends[-9]} killed, {ends[1]} failed, "
        f"{ends[0]} succeeded"
    )


def _sample(sweep: Sweep, faults: Sequence[Fault], count: int) -> list[Point]:
    seed = first_seed()
    print(f"HINDCAST_SEED={seed}")  # noqa: T201 - pytest shows it with a failure
    points = sweep.points(faults)
    return Random(seed).sample(points, min(count, len(points)))


def test_random_kills(prepared: Prepared, capsys: pytest.CaptureFixture[str]) -> None:
    seed = first_seed()
    sweep = prepared(BY_NAME[Random(seed).choice(("publish", "rollback", "clean"))])
    points = _sample(sweep, KILLS, IN_MAKE_TEST)
    with capsys.disabled():
        print(f" HINDCAST_SEED={seed} ", end="")  # noqa: T201
    _play(sweep, points)


@pytest.mark.slow
@of_each
def test_a_loss_of_power_undoes_nothing_that_a_command_has_reported(prepared: Prepared, topology: Topology) -> None:
    assert not prepared(topology).undurable()


@pytest.mark.slow
@of_each
def test_some_kills(prepared: Prepared, topology: Topology) -> None:
    sweep = prepared(topology)
    _play(sweep, _sample(sweep, KILLS, IN_MAKE_SLOW))


@pytest.mark.slow
@of_each
def test_some_errors(prepared: Prepared, topology: Topology) -> None:
    sweep = prepared(topology)
    _play(sweep, _sample(sweep, ERRORS, IN_MAKE_SLOW))


@pytest.mark.slow
@pytest.mark.spark
def test_kills_of_a_driver_its_jvm_and_their_workers(prepared: Prepared) -> None:
    sweep = prepared(IN_SPARK)
    _play(sweep, _sample(sweep, KILLS, IN_SPARK_POINTS))


@pytest.mark.soak
@pytest.mark.timeout(14_400)
@of_each
def test_every_kill(prepared: Prepared, topology: Topology) -> None:
    sweep = prepared(topology)
    _play(sweep, sweep.points(KILLS))


@pytest.mark.soak
@pytest.mark.timeout(28_800)
@of_each
def test_every_error(prepared: Prepared, topology: Topology) -> None:
    sweep = prepared(topology)
    _play(sweep, sweep.points(ERRORS))
