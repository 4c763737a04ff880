"""The bench of a billion records, with few of them."""

from pathlib import Path

import numpy as np
import pytest

from bench import billion
from bench.workloads import CLOSING_KEY, DAY_MS, FIRST_DAY_MS, day_parts


def test_the_days_of_a_log_are_full_and_only_the_last_one_has_the_closing_record() -> None:
    for day in range(3):
        [events] = day_parts(billion.WORKLOAD, 50, day, of=3, seed=1)
        assert len(events) == 50
        assert (CLOSING_KEY in events.key) == (day == 2)
        assert np.all((events.arrived_ms - FIRST_DAY_MS) // DAY_MS == day)


@pytest.mark.soak
def test_all_records_of_all_slices_are_replayed_and_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(billion, "SLOWER", 100)
    monkeypatch.setattr(billion, "LARGER", 100)
    asked = ["--records", "2000", "--slices", "3", "--one-slice", "5000", "--cache", str(tmp_path)]
    billion.main(asked, standalone_mode=False)
    lines = capfd.readouterr().out.splitlines()
    assert [line.split(",", 1)[1].split(" records")[0].strip() for line in lines] == ["2,000", "6,000", "5,000"]
