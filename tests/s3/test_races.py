"""Put-if-absent: the store refuses a second put of a name, and two processes lose no commit of each other."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from jobs.lake.delta_tables import open_delta
from jobs.ledger.ledger import Ledger
from tests.support.object_store import ObjectStore
from tests.support.places import ROOT

pytestmark = pytest.mark.s3

RACES = 200
ABSENT = {"If-None-Match": "*"}
WRITER = """
import sys
from jobs.ledger.ledger import Ledger
from jobs.ledger.events import EventKind, LedgerEvent
uri, name, times = sys.argv[1], sys.argv[2], int(sys.argv[3])
ledger = Ledger(uri, now_ms=lambda: 7)
print("ready", flush=True)
for number in range(times):
    sys.stdin.readline()  # both processes start each race at once
    ledger.write(lambda view: [LedgerEvent(kind=EventKind.NOTE, who=name, reason=str(number))])
    print(number, flush=True)
"""


def test_the_store_refuses_a_second_put_of_a_name(store: ObjectStore) -> None:
    assert store.put("probe/once", b"first", ABSENT) == 200
    assert store.put("probe/once", b"second", ABSENT) == 412
    assert store.put("probe/once", b"third") == 200, "without the condition a put replaces the object"


def test_of_many_puts_of_a_name_at_once_one_wins(store: ObjectStore) -> None:
    with ThreadPoolExecutor(max_workers=16) as pool:
        for number in range(10):
            found = list(pool.map(lambda one: store.put(f"probe/{number}", str(one).encode(), ABSENT), range(16)))  # noqa: B023
            assert sorted({*found} - {409}) == [200, 412], "409: a put of this name was under way"
            assert found.count(200) == 1


def test_two_processes_race_and_no_event_of_a_ledger_is_lost_or_doubled(lake: str) -> None:
    uri = f"{lake}/p/ledger"
    names = ("one", "two")
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, uri, name, str(RACES)],
            cwd=ROOT,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for name in names
    ]
    _answers(writers)
    for _ in range(RACES):
        for one in writers:
            assert one.stdin is not None
            one.stdin.write("go\n")
            one.stdin.flush()
        _answers(writers)
    for one in writers:
        one.communicate()
        assert one.returncode == 0
    view = Ledger(uri, now_ms=lambda: 7).view()  # follows the hash chain from the first event
    rows = sorted(open_delta(uri).to_pyarrow_table().to_pylist(), key=lambda row: row["seq"])
    assert view.version == rows[-1]["seq"]
    assert len({row["seq"] for row in rows}) == len(rows) == 2 * RACES, "one event in each commit"
    for name in names:
        assert [row["reason"] for row in rows if row["who"] == name] == [str(number) for number in range(RACES)]


def _answers(writers: "list[subprocess.Popen[str]]") -> None:
    for one in writers:
        assert one.stdout is not None
        assert one.stdout.readline().strip()
