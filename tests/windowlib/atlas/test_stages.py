"""Every stage of the inner pipeline and every operator of $match; refused pipelines, with their place."""

import re
from typing import Any

import pytest

from tests.windowlib.atlas.test_expressions import name_of, same
from windowlib.atlas.documents.documents import Date
from windowlib.atlas.documents.places import Place
from windowlib.atlas.stages.queries import QUERY_OPERATORS
from windowlib.atlas.stages.stage_forms import Run
from windowlib.atlas.stages.stages import REFUSED, STAGES, compile_pipeline, run_pipeline
from windowlib.errors import SpecError

ABC: list[dict[str, Any]] = [
    {"_id": 1, "n": 3, "s": "b", "o": {"p": 1, "q": 2}},
    {"_id": 2, "n": 1, "s": "a", "a": [1, 2]},
    {"_id": 3, "n": 2, "a": [], "os": [{"k": 1}, {"k": 2, "z": 0}]},
]


def run(pipeline: list[Any], documents: list[dict[str, Any]] = ABC) -> tuple[list[Any], Run]:
    one = Run(meta={}, now_ms=0)
    return run_pipeline(compile_pipeline(pipeline, Place("pipeline")), documents, one), one


# (pipeline over ABC, result)
CASES: list[tuple[list[Any], list[Any]]] = [
    ([{"$match": {"n": {"$gt": 1}}}, {"$project": {"n": 1}}], [{"_id": 1, "n": 3}, {"_id": 3, "n": 2}]),
    ([{"$sort": {"n": 1}}, {"$limit": 2}, {"$project": {"_id": 1}}], [{"_id": 2}, {"_id": 3}]),
    ([{"$sort": {"s": -1, "n": 1}}, {"$project": {"_id": 1}}], [{"_id": 1}, {"_id": 2}, {"_id": 3}]),
    ([{"$sort": {"a": 1}}, {"$project": {"_id": 1}}], [{"_id": 3}, {"_id": 1}, {"_id": 2}]),
    ([{"$sort": {"a.k": 1, "_id": 1}}, {"$project": {"_id": 1}}], [{"_id": 1}, {"_id": 2}, {"_id": 3}]),
    ([{"$sort": {"os.k": -1}}, {"$project": {"_id": 1}}], [{"_id": 3}, {"_id": 1}, {"_id": 2}]),
    ([{"$sort": {"o.p": -1}}, {"$limit": 1}, {"$project": {"_id": 1}}], [{"_id": 1}]),
    ([{"$count": "all"}], [{"all": 3}]),
    ([{"$match": {"n": 99}}, {"$count": "all"}], []),
    ([{"$group": {"_id": "$s"}}], [{"_id": None}, {"_id": "a"}, {"_id": "b"}]),
    ([{"$group": {"_id": {"big": {"$gt": ["$n", 1]}}, "n": {"$sum": "$n"}}}],
     [{"_id": {"big": False}, "n": 1}, {"_id": {"big": True}, "n": 5}]),
    ([{"$limit": 1}, {"$addFields": {"m": {"$add": ["$n", 1]}, "o.q": "$s"}}],
     [{"_id": 1, "n": 3, "s": "b", "o": {"p": 1, "q": "b"}, "m": 4}]),
    ([{"$limit": 1}, {"$set": {"o": {"r": {"t": 1}}, "n": "$$REMOVE"}}],
     [{"_id": 1, "s": "b", "o": {"p": 1, "q": 2, "r": {"t": 1}}}]),
    # Each field is computed from the document before the stage.
    ([{"$limit": 1}, {"$set": {"n": "$s", "s": "$n"}}, {"$unset": "o"}], [{"_id": 1, "n": "b", "s": 3}]),
    ([{"$unset": ["o.p", "s", "nope"]}, {"$limit": 1}], [{"_id": 1, "n": 3, "o": {"q": 2}}]),
    ([{"$limit": 1}, {"$unset": ["s.x", "t.x", "o"]}], [{"_id": 1, "n": 3, "s": "b"}]),
    ([{"$match": {"_id": 2}}, {"$project": {"a.k": 1}}], [{"_id": 2, "a": []}]),
    ([{"$match": {"_id": 3}}, {"$unset": "os.k"}], [{"_id": 3, "n": 2, "a": [], "os": [{}, {"z": 0}]}]),
    ([{"$match": {"_id": 3}}, {"$set": {"os.new": 1}}, {"$project": {"os": 1, "_id": 0}}],
     [{"os": [{"k": 1, "new": 1}, {"k": 2, "z": 0, "new": 1}]}]),
    ([{"$limit": 1}, {"$project": {"o.p": 1, "twice": {"$multiply": ["$n", 2]}}}],
     [{"_id": 1, "o": {"p": 1}, "twice": 6}]),
    ([{"$limit": 1}, {"$project": {"o": {"q": 1}, "_id": 0}}], [{"o": {"q": 2}}]),
    ([{"$match": {"_id": 3}}, {"$project": {"os.k": True, "_id": 0}}], [{"os": [{"k": 1}, {"k": 2}]}]),
    ([{"$limit": 1}, {"$project": {"o": 0, "_id": 0}}], [{"n": 3, "s": "b"}]),
    ([{"$limit": 1}, {"$project": {"o": 0, "_id": 1}}], [{"_id": 1, "n": 3, "s": "b"}]),
    ([{"$limit": 1}, {"$project": {"_id": 0}}], [{"n": 3, "s": "b", "o": {"p": 1, "q": 2}}]),
    ([{"$limit": 1}, {"$project": {"_id": "$s", "n": {"$literal": 1}}}], [{"_id": "b", "n": 1}]),
    ([{"$unwind": "$a"}, {"$project": {"a": 1}}], [{"_id": 2, "a": 1}, {"_id": 2, "a": 2}]),
    ([{"$unwind": {"path": "$a", "preserveNullAndEmptyArrays": True, "includeArrayIndex": "i"}},
      {"$project": {"a": 1, "i": 1}}],
     [{"_id": 1, "i": None}, {"_id": 2, "a": 1, "i": 0}, {"_id": 2, "a": 2, "i": 1}, {"_id": 3, "i": None}]),
    ([{"$limit": 1}, {"$unwind": {"path": "$s", "includeArrayIndex": "i"}}, {"$project": {"s": 1, "i": 1, "_id": 0}}],
     [{"s": "b", "i": None}]),
    ([{"$match": {"o": {"$exists": True}}}, {"$replaceRoot": {"newRoot": "$o"}}], [{"p": 1, "q": 2}]),
    ([{"$limit": 1}, {"$replaceWith": {"x": "$n"}}], [{"x": 3}]),
    ([{"$match": {"_id": 3}}, {"$redact": {"$cond": [{"$eq": ["$k", 1]}, "$$PRUNE", "$$DESCEND"]}}],
     [{"_id": 3, "n": 2, "a": [], "os": [{"k": 2, "z": 0}]}]),
    ([{"$redact": {"$cond": [{"$eq": ["$n", 3]}, "$$KEEP", "$$PRUNE"]}}, {"$project": {"o": 1}}],
     [{"_id": 1, "o": {"p": 1, "q": 2}}]),
    ([{"$validate": {"validator": {"n": {"$gt": 2}}}}, {"$project": {"n": 1, "_id": 0}}], [{"n": 3}]),
]  # fmt: skip


@pytest.mark.parametrize(("pipeline", "wanted"), CASES, ids=name_of)
def test_stage(pipeline: list[Any], wanted: list[Any]) -> None:
    results, outcome = run(pipeline)
    assert outcome.failures == []
    if any("$project" in stage for stage in pipeline):
        assert results == wanted  # compare without the order of fields: computed fields come last
    else:
        assert same(results, wanted), results


NESTED: list[dict[str, Any]] = [{"a": [[{"b": 1, "c": 2}], {"b": 3}, 4]}, {"a": 5}, {"a": []}]


@pytest.mark.parametrize(
    ("stage", "wanted"),
    [
        ({"$project": {"a.b": 1}}, [{"a": [[{"b": 1}], {"b": 3}]}, {}, {"a": []}]),
        ({"$project": {"a.b": 0}}, [{"a": [[{"c": 2}], {}, 4]}, {"a": 5}, {"a": []}]),
        ({"$unset": "a.b"}, [{"a": [[{"c": 2}], {}, 4]}, {"a": 5}, {"a": []}]),
        ({"$set": {"a.b": "x"}}, [{"a": [[{"b": "x", "c": 2}], {"b": "x"}, {"b": "x"}]}, {"a": {"b": "x"}}, {"a": []}]),
        ({"$project": {"a.d": "x"}}, [{"a": [[{"d": "x"}], {"d": "x"}, {"d": "x"}]}, {"a": {"d": "x"}}, {"a": []}]),
        (
            {"$project": {"a.b": 1, "a.d": "x"}},
            [{"a": [[{"b": 1, "d": "x"}], {"b": 3, "d": "x"}, {"d": "x"}]}, {"a": {"d": "x"}}, {"a": []}],
        ),
        ({"$unwind": "$a.b"}, []),
    ],
    ids=name_of,
)
def test_fields_inside_arrays(stage: Any, wanted: list[Any]) -> None:  # noqa: ANN401 - JSON
    """As in MongoDB, stages that change fields go into arrays of arrays, and $unwind goes into no array."""
    results, outcome = run([stage], NESTED)
    assert (same(results, wanted), outcome.failures) == (True, []), results


@pytest.mark.parametrize("name", STAGES)
def test_every_stage_has_a_case(name: str) -> None:
    assert any(name in stage for pipeline, _ in CASES for stage in pipeline)


@pytest.mark.parametrize(
    ("pipeline", "stage", "reason"),
    [
        ([{"$replaceRoot": {"newRoot": "$n"}}], "$replaceRoot", "needs an object as the new document, got int"),
        ([{"$replaceWith": "$o"}], "$replaceWith", "needs an object as the new document, got missing"),
        ([{"$redact": "$n"}], "$redact", r"needs \$\$DESCEND"),
        ([{"$match": {"$expr": {"$divide": [1, {"$subtract": ["$n", 3]}]}}}], "$match", "by zero"),
        (
            [{"$validate": {"validator": {"n": 1}, "validationAction": "dlq"}}],
            "$validate",
            "did not pass the validator",
        ),
        ([{"$unwind": "$os"}, {"$set": {"x": {"$divide": [1, "$os.z"]}}}], "$addFields", "by zero"),
    ],
    ids=name_of,
)
def test_a_document_that_fails_leaves_the_pipeline_and_the_others_continue(
    pipeline: list[Any], stage: str, reason: str
) -> None:
    _, outcome = run(pipeline)
    assert {failure.stage for failure in outcome.failures} == {stage}
    assert all(re.search(reason, failure.reason) for failure in outcome.failures)


def test_a_document_keeps_its_origin_until_it_is_grouped() -> None:
    _, outcome = run([{"$unwind": "$os"}, {"$set": {"x": {"$divide": [1, "$os.z"]}}}])
    assert [failure.item.origin for failure in outcome.failures] == [2]
    _, outcome = run([{"$group": {"_id": "$n"}}, {"$set": {"x": {"$divide": [1, 0]}}}])
    assert [failure.item.origin for failure in outcome.failures] == [None] * 3


THINGS: list[dict[str, Any]] = [
    {"_id": 0},
    {"_id": 1, "v": None},
    {"_id": 2, "v": 5},
    {"_id": 3, "v": 5.0},
    {"_id": 4, "v": "5"},
    {"_id": 5, "v": [5, 8]},
    {"_id": 6, "v": {"w": 5}},
    {"_id": 7, "v": [{"w": 5, "y": 1}, {"w": 6, "y": 2}]},
    {"_id": 8, "v": True},
    {"_id": 9, "v": Date(5)},
    {"_id": 10, "v": [[5]]},
    {"_id": 11, "v": []},
]

# (query, the _ids that match)
QUERIES: list[tuple[Any, list[int]]] = [
    ({}, list(range(12))),
    ({"v": 5}, [2, 3, 5]),
    ({"v": None}, [0, 1]),
    ({"v": [5, 8]}, [5]),
    ({"v": [5]}, [10]),
    ({"v": {"w": 5}}, [6]),
    ({"v.w": 5}, [6, 7]),
    ({"v.0": 5}, [5, 10]),
    ({"v.w": None}, [0, 1, 2, 3, 4, 8, 9]),
    ({"v.w": {"$exists": False}}, [0, 1, 2, 3, 4, 5, 8, 9, 10, 11]),
    ({"v.1.w": 6}, [7]),
    ({"v": {"$date": {"$numberLong": "5"}}}, [9]),
    ({"v": {"$eq": 5}}, [2, 3, 5]),
    ({"v": {"$ne": 5}}, [0, 1, 4, 6, 7, 8, 9, 10, 11]),
    ({"v": {"$gt": 5}}, [5]),
    ({"v": {"$gte": 5}}, [2, 3, 5]),
    ({"v": {"$lt": 6}}, [2, 3, 5]),
    ({"v": {"$lte": "5"}}, [4]),
    ({"v": {"$gte": None}}, [0, 1]),
    ({"v": {"$gt": 4, "$lt": 6}}, [2, 3, 5]),
    ({"v": {"$in": ["5", None]}}, [0, 1, 4]),
    ({"v": {"$nin": ["5", None, 5]}}, [6, 7, 8, 9, 10, 11]),
    ({"v": {"$exists": True}}, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
    ({"v": {"$exists": False}}, [0]),
    ({"v": {"$type": "int"}}, [2, 5]),
    ({"v": {"$type": "number"}}, [2, 3, 5]),
    ({"v": {"$type": ["string", 8]}}, [4, 8]),
    ({"v": {"$type": "array"}}, [5, 7, 10, 11]),
    ({"v": {"$size": 2}}, [5, 7]),
    ({"v": {"$all": [5, 8]}}, [5]),
    ({"v": {"$all": []}}, []),
    ({"v": {"$elemMatch": {"$gt": 5, "$lt": 9}}}, [5]),
    ({"v": {"$elemMatch": {"$gte": 5}}}, [5]),
    ({"v": {"$elemMatch": {"$not": {"$gte": 5}}}}, [7, 10]),
    ({"v": {"$elemMatch": {"$eq": [5]}}}, [10]),
    ({"v": {"$elemMatch": {"$size": 1}}}, [10]),
    ({"v": {"$elemMatch": {"$elemMatch": {"$gte": 5}}}}, [10]),
    ({"v": {"$elemMatch": {"w": 5, "y": 1}}}, [7]),
    ({"v": {"$elemMatch": {"w": 5, "y": 2}}}, []),
    ({"v.w": 5, "v.y": 2}, [7]),
    ({"v": {"$mod": [4, 1]}}, [2, 3, 5]),
    ({"v": {"$not": {"$gt": 4}}}, [0, 1, 4, 6, 7, 8, 9, 10, 11]),
    ({"v": {"$regex": "^5$"}}, [4]),
    ({"v": {"$regex": "5", "$options": "i"}}, [4]),
    ({"$and": [{"v": 5}, {"_id": {"$lt": 3}}]}, [2]),
    ({"$or": [{"v": "5"}, {"v": True}]}, [4, 8]),
    ({"$nor": [{"_id": {"$gt": 1}}, {"v": None}]}, []),
    ({"$expr": {"$gt": [{"$size": {"$cond": [{"$isArray": "$v"}, "$v", []]}}, 1]}}, [5, 7]),
    ({"$comment": "all", "_id": {"$lte": 1}}, [0, 1]),
]


@pytest.mark.parametrize(("query", "wanted"), QUERIES, ids=name_of)
def test_query(query: Any, wanted: list[int]) -> None:  # noqa: ANN401 - JSON
    results, _ = run([{"$match": query}], THINGS)
    assert [document["_id"] for document in results] == wanted


@pytest.mark.parametrize("name", QUERY_OPERATORS)
def test_every_query_operator_has_a_case(name: str) -> None:
    assert any(f"'{name}'" in repr(query) for query, _ in QUERIES)


def test_nan_is_equal_to_itself_only() -> None:
    nan = {"$numberDouble": "NaN"}
    documents = [{"v": float("nan")}, {"v": 1.0}]
    assert len(run([{"$match": {"v": nan}}], documents)[0]) == 1
    assert len(run([{"$match": {"v": {"$gte": nan}}}], documents)[0]) == 1
    assert len(run([{"$match": {"v": {"$lt": 5}}}], documents)[0]) == 1


REFUSALS: list[tuple[Any, str]] = [
    *[([{name: {}}], rf"pipeline\[0\]\.\{name}: \{name} is not allowed inside a window: ") for name in REFUSED],
    ([{"$facet": {}}], r"pipeline\[0\]\.\$facet: there is no stage \$facet; allowed are \$match, \$group"),
    ({"$match": {}}, "pipeline: found .* allowed is an array"),
    ([{"$match": {}, "$limit": 1}], r"pipeline\[0\]: .* the name of a stage"),
    (["$match"], r"pipeline\[0\]: .* an object"),
    ([{"$limit": 0}], r"\$limit: found 0; allowed is an integer of at least 1"),
    ([{"$limit": True}], "an integer"),
    ([{"$sort": {}}], "at least one field"),
    ([{"$sort": {"a": "up"}}], r"\$sort\.a: found 'up'; allowed is 1 \(ascending\) or -1"),
    ([{"$sort": {"a": True}}], "ascending"),
    ([{"$count": ""}], "a text that is not empty"),
    ([{"$count": "a.b"}], "without dots"),
    ([{"$count": "$a"}], "a field's path"),
    ([{"$group": {"n": {"$sum": 1}}}], "_id with an expression"),
    ([{"$group": {"_id": 1, "a.b": {"$sum": 1}}}], "without dots"),
    ([{"$addFields": {}}], "at least one field"),
    ([{"$addFields": {"$x": 1}}], "a field's path"),
    ([{"$unset": []}], "at least one field"),
    ([{"$unset": 5}], "a text"),
    ([{"$project": {}}], "at least one field"),
    ([{"$project": {"a": 0, "b": 1}}], "either fields to leave out"),
    ([{"$unwind": "a"}], r"a path such as \$field"),
    ([{"$unwind": {"path": "$a", "keep": True}}], "no such option"),
    ([{"$replaceRoot": {"new": 1}}], "no such option"),
    ([{"$validate": {"validator": {"$jsonSchema": {}}}}], r"\$jsonSchema is not supported"),
    ([{"$validate": {"validator": {}, "validationAction": "error"}}], "one of discard, dlq"),
    ([{"$match": {"$where": "1"}}], r"\$match\.\$where: .* a field, or one of \$and"),
    ([{"$match": {"a": {"$near": 1}}}], r"\$match\.a\.\$near: there is no query operator \$near; allowed are"),
    ([{"$match": {"a": {"$options": "i"}}}], r"\$match\.a: found .*; allowed is \$options beside \$regex only"),
    ([{"$match": {"a": {"$regex": "("}}}], "no regular expression"),
    ([{"$match": {"a": {"$regex": "a", "$options": "q"}}}], "option 'q'"),
    ([{"$match": {"$or": []}}], "at least one query"),
    ([{"$match": {"a": {"$in": 5}}}], "an array"),
    ([{"$match": {"a": {"$type": "regex"}}}], "one of double"),
    ([{"$match": {"a": {"$size": -1}}}], "at least 0"),
    ([{"$match": {"a": {"$mod": [0, 1]}}}], "a divisor that is not 0"),
    ([{"$match": {"a": {"$mod": [4]}}}], r"\[divisor, remainder\]"),
    ([{"$match": {"a": {"$not": 5}}}], "an object of operators"),
    ([{"$match": {"$expr": {"$nope": 1}}}], r"\$match\.\$expr\.\$nope"),
]


@pytest.mark.parametrize(("pipeline", "message"), REFUSALS, ids=name_of)
def test_refusal(pipeline: Any, message: str) -> None:  # noqa: ANN401 - JSON
    with pytest.raises(SpecError, match=message):
        compile_pipeline(pipeline, Place("pipeline"))


def test_a_pipeline_does_not_change_its_input_documents() -> None:
    before = repr(ABC)
    for pipeline, _ in CASES:
        run(pipeline)
    assert repr(ABC) == before
