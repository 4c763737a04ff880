"""The bench of long runs: what it calls growth, its plot, and a short run."""

from dataclasses import asdict
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.long_runs import Resources, backfill, daily, growing, plot
from tests.support.small_lake import SmallLake

FLAT = Resources(slices=0, memory_mb=100.0, handles=9, threads=4, temporary_files=2, cpu_ms=50.0)


def samples(count: int, **rises: float) -> list[Resources]:
    """Return samples. Some figures rise by so much with each of them."""
    return [
        Resources(**asdict(FLAT) | {"slices": 10 * (number + 1)} | {
            name: getattr(FLAT, name) + rise * number for name, rise in rises.items()
        })
        for number in range(count)
    ]  # fmt: skip


def test_a_figure_that_rises_with_the_slices_is_named() -> None:
    assert not [*growing(samples(9))]
    assert not [*growing(samples(9, memory_mb=0.5))]
    assert [line.split(":")[0] for line in growing(samples(9, memory_mb=20, handles=3, cpu_ms=50))] == [
        "memory_mb",
        "handles",
        "cpu_ms",
    ]


def test_a_plot_has_a_line_for_each_kind_of_run_in_each_panel() -> None:
    root = ElementTree.fromstring(plot({"daily": samples(9), "backfill": samples(12)}))  # noqa: S314 - it is our own
    lines = [node for node in root.iter() if node.tag.endswith("polyline")]
    assert [len(line.attrib["points"].split()) for line in lines] == [9, 12] * 5


@pytest.mark.slow
def test_a_short_run_has_a_sample_after_each_few_days(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path)
    assert [sample.slices for sample in daily(lake, 4, 2)] == [2, 4]
    assert [sample.slices for sample in backfill(lake, 7, 3)] == [3, 6, 7]
    assert all(sample.cpu_ms > 0 for sample in backfill(lake, 7, 3))
