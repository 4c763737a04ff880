"""Tables on screens of any width and in pipes: nothing is lost, no id is broken over two lines, long tables."""

import random
import re
from collections import Counter

import pytest
from rich.cells import cell_len

from jobs.console import print_table
from tests.support.fuzzing import chances, seeds
from tests.support.timing import growth

COLUMNS = ("slice", "run", "why", "records")


def random_rows(chance: random.Random) -> list[tuple[str, str, str, str]]:
    words = ["state", "before", "changed", "é", "日本", "[bold]x", "", "a" * chance.randrange(1, 30)]
    return [
        (
            f"2013-02-{chance.randrange(1, 28):02d}",
            f"{chance.getrandbits(48):012x}",
            " ".join(chance.choices(words, k=chance.randrange(12))),
            f"{chance.randrange(10**7):,}",
        )
        for _ in range(chance.randrange(1, 8))
    ]


def test_no_id_and_no_number_is_broken_on_any_screen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for chance in chances(150):
        width = chance.choice([12, 20, 30, 40, 50, 60, 80, 200, None])
        if width is None:
            monkeypatch.delenv("COLUMNS", raising=False)
        else:
            monkeypatch.setenv("COLUMNS", str(width))
        rows, cut = random_rows(chance), ("why",) if chance.random() < 0.3 else ()
        capsys.readouterr()
        print_table("t", COLUMNS, rows, right=("records",), whole=("slice", "run"), cut=cut)
        title, *lines = capsys.readouterr().out.splitlines()
        assert title == "t"
        for row in rows:
            _check_row(row, lines, width=width, is_cut=bool(cut))
        assert width is None or width < 60 or all(cell_len(line) <= width for line in lines)


def _check_row(row: tuple[str, str, str, str], lines: list[str], *, width: int | None, is_cut: bool) -> None:
    day, run, why, records = row
    assert all(any(whole in line for line in lines) for whole in (day, run, records))
    assert is_cut or _letters(why) <= _letters("".join(lines))
    assert width is not None or any(line.split() == [day, run, *why.split(), records] for line in lines)


def test_no_character_is_lost_with_any_columns_on_a_screen_of_any_width(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last column, too: rich makes columns narrower than their minimum, and then crops the last one."""
    for seed in seeds(300):
        chance = random.Random(seed)
        names = [f"c{number}{'x' * chance.randrange(8)}" for number in range(chance.randrange(2, 10))]
        kinds = dict(zip(names, chance.choices(("right", "whole", "wrapped"), k=len(names)), strict=True))
        rows = [
            [f"{chance.randrange(10 ** chance.randrange(1, 13)):,}" if kinds[name] == "right" else _words(chance, most=
             1 if kinds[name] == "whole" else 4) for name in names]
            for _ in range(chance.randrange(1, 4))
        ]  # fmt: skip
        monkeypatch.setenv("COLUMNS", str(chance.randrange(20, 120)))
        capsys.readouterr()
        right, whole = ([name for name in names if kinds[name] == kind] for kind in ("right", "whole"))
        print_table("t", names, rows, right=right, whole=whole)
        text = capsys.readouterr().out
        rigid = [cell for row in rows for name, cell in zip(names, row, strict=True) if kinds[name] != "wrapped"]
        assert [cell for cell in rigid if cell not in text] == [], seed
        needed = Counter("".join("".join(row) for row in rows).replace(" ", ""))
        assert not needed - Counter(text), (seed, text)


def _words(chance: random.Random, *, most: int) -> str:
    letters = "abcdefgh-:.0123"
    return " ".join("".join(chance.choices(letters, k=chance.randrange(1, 16))) for _ in range(most))


def _letters(text: str) -> set[str]:
    return set(re.sub(r"\s", "", text))


@pytest.mark.slow
def test_long_tables_are_printed_in_linear_time(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [(f"{number:08}", f"{number:012x}", "state before changed", "1,000") for number in range(3_000)]

    def printed(count: int) -> None:
        print_table("t", COLUMNS, rows[:count], right=("records",), whole=("slice", "run"))

    for columns in ("60", "30", "200"):
        monkeypatch.setenv("COLUMNS", columns)
        assert growth(printed, 300, 3_000) < 20, columns
        capsys.readouterr()
        printed(3_000)
        assert len(capsys.readouterr().out.splitlines()) >= 3_000
