"""Every operator of the expression language, with ordinary, missing and wrong values."""

import json
import random
import re
from decimal import Decimal
from typing import Any

import pytest

from tests.windowlib.atlas.expression_cases import CASES, FAULTS, FEB_8, REFUSALS
from windowlib.atlas.documents.documents import MISSING, Date, sort_key, type_name
from windowlib.atlas.documents.json_documents import read_text, to_text
from windowlib.atlas.documents.places import Place
from windowlib.atlas.expressions.calendars import PARTS
from windowlib.atlas.expressions.expressions import OPERATORS, compile_expression
from windowlib.atlas.expressions.forms import Call, Expression, ExpressionFault, NamedCall, Scope, Special
from windowlib.errors import SpecError

DOCUMENT = {
    "i": 7, "neg": -7, "zero": 0, "d": 2.5, "dec": Decimal("1.10"), "s": "Hello", "e": "", "t": True, "f": False,
    "nul": None,
    "a": [3, 1, 2], "mix": [1, "a", None], "o": {"p": 1, "q": {"r": 2}}, "os": [{"k": 1}, {"k": 2}, {"z": 3}],
    "nest": [[1], [2]],
    "day": Date(1_360_326_896_789),  # 2013-02-08T12:34:56.789Z, a Friday
    "b": b"\x01\x02", "big": 1 << 40, "umlaut": "añb",
}  # fmt: skip


def evaluate(expression: Any) -> Any:  # noqa: ANN401 - JSON in, a value out
    scope = Scope(DOCUMENT, {"window": {"start": Date(5)}}, 42)
    return compile_expression(expression, Place("stage"))(scope)


def same(value: Any, wanted: Any) -> bool:  # noqa: ANN401 - any values
    """Tell whether two values are equal and have equal types: 1 is not the same as 1.0; NaN is the same as NaN."""
    if isinstance(value, list) and isinstance(wanted, list):
        return len(value) == len(wanted) and all(map(same, value, wanted))
    if isinstance(value, dict) and isinstance(wanted, dict):
        return list(value) == list(wanted) and all(map(same, value.values(), wanted.values()))
    is_nan = value != value and wanted != wanted  # noqa: PLR0124 - NaN
    has_sign = not isinstance(value, float) or repr(value) == repr(wanted)  # 0.0 is not -0.0
    return type(value) is type(wanted) and ((value == wanted and has_sign) or is_nan)


def name_of(case: Any) -> str:  # noqa: ANN401 - part of a case
    return json.dumps(case, default=str)[:60] if isinstance(case, dict | list | str) else str(case)[:30]


@pytest.mark.parametrize(("expression", "wanted"), CASES, ids=name_of)
def test_value(expression: Any, wanted: Any) -> None:  # noqa: ANN401 - JSON and a value
    value = evaluate(expression)
    assert same(value, wanted), f"{value!r} ({type_name(value)}) is not {wanted!r}"


@pytest.mark.parametrize(("expression", "reason"), FAULTS, ids=name_of)
def test_fault(expression: Any, reason: str) -> None:  # noqa: ANN401 - JSON
    with pytest.raises(ExpressionFault, match=reason):
        evaluate(expression)


@pytest.mark.parametrize(("expression", "message"), REFUSALS, ids=name_of)
def test_refusal(expression: Any, message: str) -> None:  # noqa: ANN401 - JSON
    with pytest.raises(SpecError, match=message):
        compile_expression(expression, Place("stage"))


def operators_in(found: Any) -> set[str]:  # noqa: ANN401 - JSON
    if isinstance(found, dict):
        inner = [operators_in(value) for value in found.values()]
        return {name for name in found if name.startswith("$")}.union(*inner)
    return set().union(*map(operators_in, found)) if isinstance(found, list) else set()


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_every_operator_has_a_case(name: str) -> None:
    assert any(name in operators_in(expression) for expression, _ in CASES)


def test_an_expression_does_not_change_its_document() -> None:
    before = json.dumps(DOCUMENT, default=str)
    for expression, _ in CASES:
        evaluate(expression)
    assert json.dumps(DOCUMENT, default=str) == before
    assert evaluate("$nothing") is MISSING


POOL: list[Any] = [
    None, MISSING, True, False, 0, 1, -1, 7, 1 << 62, -(1 << 63), 0.0, -0.5, 2.5, 1e308, float("nan"), float("inf"),
    Decimal(0), Decimal("1.5"), Decimal("-1E+6000"), Decimal("NaN"), "", "a", "%Y", "[", "2013-02-08", "year", "UTC",
    "mon", "i", b"", b"a", [], [1, "a", None], [[1, 2]], ["a"], {}, {"a": 1}, {"k": "a", "v": 1}, Date(0),
    Date(1 << 62), Date(FEB_8),
]  # fmt: skip


def called(form: Call | NamedCall, rng: random.Random) -> Any:  # noqa: ANN401 - JSON
    """Return arguments for an operator: paths to fields of a document."""
    if isinstance(form, NamedCall):
        names = [*form.required, *(name for name in form.optional if rng.random() < 0.5)]
        return {name: f"$v{place}" for place, name in enumerate(names)}
    count = rng.randint(form.least, form.least + 3 if form.most is None else form.most)
    return [f"$v{place}" for place in range(count)]


def outcome(expression: Expression, document: dict[str, Any]) -> tuple[Any, str | None]:
    """Return (value, None), or (None, the reason of the fault)."""
    try:
        return expression(Scope(document, {}, 0)), None
    except ExpressionFault as error:
        return None, str(error)


@pytest.mark.parametrize("name", sorted(name for name, form in OPERATORS.items() if not isinstance(form, Special)))
def test_an_operator_returns_a_value_or_a_fault_for_any_arguments(name: str, rng: random.Random) -> None:
    form = OPERATORS[name]
    assert not isinstance(form, Special)
    for _ in range(300):
        expression = compile_expression({name: called(form, rng)}, Place("stage"))
        chosen = enumerate(rng.choices(POOL, k=10))
        value, reason = outcome(expression, {f"v{place}": item for place, item in chosen if item is not MISSING})
        assert reason is None or re.search(r"\$\w+|time zone|year", reason)
        if value is not MISSING:
            assert sort_key(read_text(to_text({"v": value}))) == sort_key({"v": value})


@pytest.mark.parametrize("name", PARTS)
def test_a_part_of_a_date_returns_a_value_or_a_fault_for_any_arguments(name: str) -> None:
    for value in POOL:
        for in_zone in POOL:
            argument = {"date": {"$literal": value}, "timezone": "$zone"} if value is not MISSING else "$missing"
            _, reason = outcome(compile_expression({f"${name}": argument}, Place("stage")), {"zone": in_zone})
            assert reason is None or re.search(r"\$\w+|time zone|year", reason)
