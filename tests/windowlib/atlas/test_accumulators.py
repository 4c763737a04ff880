"""Every accumulator of $group over documents in log order, and the documents that fail in one."""

import math
from decimal import Decimal
from typing import Any

import pytest

from tests.windowlib.atlas.test_expressions import name_of, same
from windowlib.atlas.documents.documents import Date
from windowlib.atlas.documents.places import Place
from windowlib.atlas.expressions.accumulators import ACCUMULATORS
from windowlib.atlas.stages.stage_forms import Run
from windowlib.atlas.stages.stages import compile_pipeline, run_pipeline
from windowlib.errors import SpecError

DOCUMENTS: list[dict[str, Any]] = [
    {"n": 3, "x": 1e16, "s": "b", "d": Decimal("0.1"), "o": {"a": 1}, "nan": math.nan},
    {"n": 1, "x": 1.0, "s": None, "d": Decimal("0.2"), "o": {"b": 2}},
    {"n": 2, "x": -1e16, "s": "a", "o": None},
    {"n": 2.0, "x": "text", "day": Date(5), "nan": 1.0},
]

CASES: list[tuple[Any, Any]] = [
    ({"$sum": "$x"}, 1.0),
    ({"$sum": "$n"}, 8.0),
    ({"$sum": 1}, 4),
    ({"$sum": "$s"}, 0),
    ({"$sum": "$d"}, Decimal("0.3")),
    ({"$sum": {"$ifNull": ["$d", 2]}}, Decimal("4.3")),
    ({"$sum": "$nan"}, math.nan),
    ({"$sum": {"$multiply": [0, {"$numberDouble": "Infinity"}]}}, math.nan),
    ({"$sum": (1 << 62)}, 1.8446744073709552e19),
    ({"$avg": "$n"}, 2.0),
    ({"$avg": "$d"}, Decimal("0.15")),
    ({"$avg": "$missing"}, None),
    ({"$min": "$s"}, "a"),
    ({"$min": "$x"}, -1e16),
    ({"$max": "$x"}, "text"),
    ({"$max": "$missing"}, None),
    ({"$max": {"$cond": [{"$eq": ["$n", 2]}, "$n", 0]}}, 2),
    ({"$min": {"$cond": [{"$eq": ["$n", 2]}, "$n", 9]}}, 2),
    ({"$first": "$n"}, 3),
    ({"$first": "$day"}, None),
    ({"$last": "$n"}, 2.0),
    ({"$last": "$s"}, None),
    ({"$push": "$s"}, ["b", None, "a"]),
    ({"$push": {"n": "$n"}}, [{"n": 3}, {"n": 1}, {"n": 2}, {"n": 2.0}]),
    ({"$addToSet": "$n"}, [3, 1, 2]),
    ({"$addToSet": "$day"}, [Date(5)]),
    ({"$count": {}}, 4),
    ({"$top": {"sortBy": {"n": -1}, "output": "$s"}}, "b"),
    ({"$top": {"sortBy": {"s": 1}, "output": "$n"}}, 1),
    ({"$bottom": {"sortBy": {"n": 1}, "output": ["$n", "$s"]}}, [3, "b"]),
    ({"$topN": {"n": 2, "sortBy": {"n": 1}, "output": "$n"}}, [1, 2]),
    ({"$bottomN": {"n": 2, "sortBy": {"n": 1}, "output": "$n"}}, [2.0, 3]),
    ({"$topN": {"n": 9, "sortBy": {"n": 1, "x": -1}, "output": "$x"}}, [1.0, "text", -1e16, 1e16]),
    ({"$firstN": {"input": "$n", "n": 2}}, [3, 1]),
    ({"$lastN": {"input": "$s", "n": 3}}, [None, "a", None]),
    ({"$minN": {"input": "$s", "n": 5}}, ["a", "b"]),
    ({"$maxN": {"input": "$n", "n": 2}}, [3, 2]),
    ({"$stdDevPop": "$n"}, math.sqrt(0.5)),
    ({"$stdDevSamp": "$n"}, math.sqrt(2 / 3)),
    ({"$stdDevPop": "$s"}, None),
    ({"$mergeObjects": "$o"}, {"a": 1, "b": 2}),
]


def grouped(accumulator: Any, documents: list[dict[str, Any]] = DOCUMENTS) -> tuple[Any, Run]:  # noqa: ANN401 - JSON
    stages = compile_pipeline([{"$group": {"_id": None, "v": accumulator}}], Place("pipeline"))
    run = Run(meta={}, now_ms=0)
    results = run_pipeline(stages, documents, run)
    return (results[0]["v"] if results else None), run


@pytest.mark.parametrize(("accumulator", "wanted"), CASES, ids=name_of)
def test_value(accumulator: Any, wanted: Any) -> None:  # noqa: ANN401 - JSON and a value
    value, run = grouped(accumulator)
    assert run.failures == []
    assert same(value, wanted), f"{value!r} is not {wanted!r}"


@pytest.mark.parametrize("name", ACCUMULATORS)
def test_every_accumulator_has_a_case(name: str) -> None:
    assert any(name in accumulator for accumulator, _ in CASES)


@pytest.mark.parametrize("kind", ["$sum", "$avg", "$stdDevPop", "$stdDevSamp"])
def test_a_sum_or_mean_does_not_depend_on_the_order(kind: str) -> None:
    numbers: list[Any] = [1e16, 1.0, -1e16, 3, 0.1, 1e-9, 2**60]
    turns = [numbers[turn:] + numbers[:turn] for turn in range(len(numbers))]
    assert len({grouped({kind: "$v"}, [{"v": number} for number in turn])[0] for turn in turns}) == 1


def test_a_sum_of_many_doubles_is_exact() -> None:
    documents = [{"v": value} for _ in range(100) for value in (1e16, 1.0, -1e16)]
    assert grouped({"$sum": "$v"}, documents)[0] == 100.0


@pytest.mark.parametrize(
    ("accumulator", "reasons", "rest"),
    [
        ({"$mergeObjects": "$s"}, ['$mergeObjects needs an object, got string "b"'] * 2, {}),
        (
            {"$lastN": {"input": "$n", "n": {"$subtract": ["$n", 1]}}},
            [
                "$lastN needs a positive n, got int 0",
                "$lastN needs one n for all documents of a group, got 2 and 1",
                "$lastN needs one n for all documents of a group, got 2 and 1",
            ],
            [3],
        ),
        ({"$sum": {"$divide": [1, {"$subtract": ["$n", 1]}]}}, ["$divide by zero"], 2.5),
    ],
    ids=["merge", "n", "argument"],
)
def test_a_document_that_fails_is_in_no_group(accumulator: Any, reasons: list[str], rest: Any) -> None:  # noqa: ANN401
    value, run = grouped(accumulator)
    assert [failure.reason.replace('"a"', '"b"') for failure in run.failures] == reasons
    assert {failure.stage for failure in run.failures} == {"$group"}
    assert same(value, rest)


def test_a_document_that_one_accumulator_refuses_is_counted_by_none() -> None:
    stages = compile_pipeline(
        [{"$group": {"_id": None, "count": {"$sum": 1}, "all": {"$mergeObjects": "$o"}}}], Place("pipeline")
    )
    run = Run(meta={}, now_ms=0)
    results = run_pipeline(stages, [{"o": {"a": 1}}, {"o": 5}, {"o": {"b": 1}}], run)
    assert results == [{"_id": None, "count": 2, "all": {"a": 1, "b": 1}}]
    assert [(failure.item.origin, failure.reason) for failure in run.failures] == [
        (1, "$mergeObjects needs an object, got int 5")
    ]


@pytest.mark.parametrize(
    ("accumulator", "message"),
    [
        ({"$median": "$n"}, r"pipeline\[0\]\.\$group\.v: found '\$median'; allowed is one of the accumulators \$sum"),
        ({"$sum": 1, "$avg": 1}, "an object with one field"),
        ("$n", "an object"),
        ({"$count": 1}, "an object"),
        ({"$count": {"x": 1}}, "no such option"),
        ({"$firstN": {"input": "$n"}}, "n is missing"),
        ({"$top": {"n": 1, "sortBy": {"n": 1}, "output": 1}}, r"\$top\.n: there is no such option"),
        ({"$top": {"sortBy": {}, "output": 1}}, "at least one field"),
        ({"$top": {"sortBy": {"n": 2}, "output": 1}}, "1 \\(ascending\\)"),
    ],
    ids=name_of,
)
def test_refusal(accumulator: Any, message: str) -> None:  # noqa: ANN401 - JSON
    with pytest.raises(SpecError, match=message):
        grouped(accumulator)
