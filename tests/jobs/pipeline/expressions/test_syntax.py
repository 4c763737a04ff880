"""What an expression may be: what is allowed has one normal form, and everything else is refused by name."""

import pytest

from jobs.pipeline.models.expressions.syntax import MAX_DEPTH, normal_text
from jobs.pipeline.models.expressions.vocabulary import FUNCTIONS

ALLOWED = {
    "payload.user.id": '"payload"."user"."id"',
    "(payload.user).id": '"payload"."user"."id"',
    "a.b.c.d.e.f": '"a"."b"."c"."d"."e"."f"',
    'PAYLOAD."user id"': '"PAYLOAD"."user id"',
    '"a""b"': '"a""b"',
    "CAST( json_extract(value, '$.amount')  AS double )": "cast(json_extract(\"value\", '$.amount') as double)",
    "value ->> '$.a' = 'x'": "(json_extract_string(\"value\", '$.a') = 'x')",
    "value -> 'a' ->> 'b'": "json_extract_string(json_extract(\"value\", 'a'), 'b')",
    "x::decimal(10,2)": 'cast("x" as decimal(10, 2))',
    "x::int < 5": '(cast("x" as integer) < 5)',
    "x::decimal(10, 2)<y::timestamp": '(cast("x" as decimal(10, 2)) < cast("y" as timestamp))',
    "list < 5": '("list" < 5)',
    "try_cast(x as timestamptz)": 'try_cast("x" as timestamptz)',
    "timestamp '2026-01-01'": "cast('2026-01-01' as timestamp)",
    "-a + b * (c - 1) / 2": '((- "a") + (("b" * ("c" - 1)) / 2))',
    "a // 2 % 3": '(("a" // 2) % 3)',
    "a AND b OR NOT c": '(("a" and "b") or (not "c"))',
    "a and b and c": '("a" and "b" and "c")',
    "(a - b) - c": '("a" - "b" - "c")',
    "a - (b - c)": '("a" - ("b" - "c"))',
    "a || b || c": '("a" || "b" || "c")',
    "a not in (1, 'x', null)": "(not (\"a\" in (1, 'x', null)))",
    "a between 1 and 2": '("a" between 1 and 2)',
    "a not like 'it''s%'": "(\"a\" not like 'it''s%')",
    "a is not null": '(not ("a" is null))',
    "a is true": '("a" is true)',
    "a != b": '("a" <> "b")',
    "a == b": '("a" = "b")',
    "(a = b) = c": '(("a" = "b") = "c")',
    "a <> (b < c)": '("a" <> ("b" < "c"))',
    "a = b is null": '(("a" = "b") is null)',
    "a is distinct from b": '("a" is distinct from "b")',
    "a || 'x'": "(\"a\" || 'x')",
    "case a when 1 then 'x' else 'y' end": "(case \"a\" when 1 then 'x' else 'y' end)",
    "case when a then 1 when b then 2 end": '(case when "a" then 1 when "b" then 2 end)',
    "extract(YEAR from t)": 'extract(year from "t")',
    "date_trunc('day', t)": "date_trunc('day', \"t\")",
    "1.5e3": "1.5e3",
    "1_000": "1000",
    "partition": '"partition"',
    "timestamp": '"timestamp"',
    "offset": '"offset"',
}

REFUSED = {
    "": "expected an expression",
    "  ": "expected an expression",
    "(": "is not an expression",
    "'x": "has no end",
    "a,b": "at position 2",
    "a b": "second word",
    "a as b": "second word",
    "a; b": "found ';' at position 2",
    "a;": "found ';' at position 2",
    "a -- b": "comments",
    "a /* b */": "comments",
    "/* b */ a": "comments",
    "select 1": "a query",
    "(select 1)": "a query",
    "x in (select 1)": "is not allowed",
    "exists (select 1)": "is not allowed",
    "x in y": "is not allowed",
    "from t": "is not allowed",
    "values (1)": "is not allowed",
    "drop table t": "is not allowed",
    "pragma version": "is not allowed",
    "set x = 1": "is not allowed",
    "attach 'x'": "is not allowed",
    "copy t to 'x'": "is not allowed",
    "read_csv('/etc/passwd')": "function read_csv at position 1 is not allowed",
    "'/etc/passwd'.x": "is not a",
    "a + read_text('x')": "function read_text at position 5",
    "getenv('HOME')": "function getenv",
    "current_setting('x')": "function current_setting",
    "random()": "same values in every replay",
    "now()": "same values in every replay",
    "current_timestamp": "same values in every replay",
    "current_date": "same values in every replay",
    "today()": "same values in every replay",
    "age(t)": "function age",
    "uuid()": "same values in every replay",
    "nextval('x')": "function nextval",
    "sum(a)": "function sum",
    "count(*)": "function count",
    "sum(a) over ()": "a window function",
    "lower(a) filter (where b)": "is not allowed",
    "lower(distinct a)": "distinct",
    "lower(a order by b)": "is not allowed",
    "lower(x := 1)": "is not allowed",
    "lowr(a)": "did you mean 'lower'",
    "main.lower(a)": "is not allowed",
    "a.lower()": "is not allowed",
    "try(a)": "function try",
    "if(a, b, c)": "function if",
    "unnest(a)": "function unnest",
    "columns('a')": "function columns",
    "columns(*)": "function columns",
    "*": "is not allowed",
    "a.*": "is not allowed",
    "a[1]": "an index in \\[\\]",
    "[1]": "is not allowed",
    "{'a': 1}": "is not allowed",
    "{{ a }}": "is not allowed",
    "(1, 2)": "is not allowed",
    "x -> x + 1": "must be a literal",
    "lambda x: x": "is not an expression",
    "$1": "a parameter",
    "?": "a parameter",
    ":x": "a parameter",
    "@x": "a parameter",
    "#1": "is not allowed",
    "interval 1 day": "an interval",
    "a at time zone 'x'": "at time zone",
    "a collate nocase": "collate",
    "a ilike 'x'": "ilike",
    "a ~ 'x'": "is not allowed",
    "a ^ 2": "is not allowed",
    "a & 1": "is not allowed",
    "a like 'b' escape '!'": "escape",
    "a between symmetric 1 and 2": "is not allowed",
    "'x' 'y'": "is not allowed",
    "$$x$$": "is not allowed",
    "e'\\n'": "is not allowed",
    "cast(a as float(53))": "write float",
    "cast(a as int[])": "cannot cast to",
    "cast(a as struct(b int))": "cannot cast to",
    "a::list<int>": "cannot cast to list",
    "cast(a as foo)": "cannot cast to foo",
    **{
        f"{word}(" * 40 + "a" + ")" * 40: "is not allowed|nested too deep"
        for word in ("bigint", "struct", '"bigint"', "decimal(1, int", "enum", "json", "f")
    },
    **{f"{word}[" * 40 + "a" + "]" * 40: "index|nested too deep" for word in ("int", "map", "decimal(1)")},
    "cast(a as blob)": "cannot cast to",
    "cast(a as json)": "cannot cast to",
    "cast(a as interval)": "cannot cast to",
    "cast(a as date format 'y')": "is not allowed",
    "date_trunc(a, t)": "argument 1 of function date_trunc must be a literal",
    "date_trunc('fortnight', t)": "date_trunc of 'fortnight'",
    "extract(timezone from t)": "extract of 'timezone'",
    "regexp_extract(a, b)": "argument 2 of function regexp_extract must be a literal",
    "json_extract(a, b)": "argument 2 of function json_extract must be a literal",
    "strptime(a, b)": "argument 2 of function strptime must be a literal",
    "lower()": "function lower takes 1 arguments, found 0",
    "lower(a, b)": "function lower takes 1 arguments, found 2",
    "case when a then b": "is not an expression",
    "1 < a < 3": "the comparison '<' is beside another one; write brackets",
    "a = b <> c": "the comparison '<>' is beside another one",
    "a < b = c": "the comparison '=' is beside another one",
    "a" * 4_001: "at most 4,000 characters",
    "+".join("a" * 1_500): "4,000 characters in its normal form",
    "(" * 900 + "a" + ")" * 900: "nested too deep",
    "lower(" * (MAX_DEPTH + 1) + "a" + ")" * (MAX_DEPTH + 1): "nested too deep",
}


@pytest.mark.parametrize("text", ALLOWED)
def test_an_allowed_expression_has_one_normal_form(text: str) -> None:
    assert normal_text(text) == ALLOWED[text]
    assert normal_text(ALLOWED[text]) == ALLOWED[text]


@pytest.mark.parametrize("text", REFUSED)
def test_any_other_expression_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=REFUSED[text]) as caught:
        normal_text(text)
    assert len(str(caught.value)) < 600, "the message of a pipeline file is cut there"


def test_the_deepest_expression_can_be_read_again_from_its_normal_form() -> None:
    """A ledger stores the normal form, which has more brackets."""
    deepest = MAX_DEPTH - 1
    chain = "a"
    for place in range(deepest):
        chain = f"({chain}) {'and' if place % 2 else 'or'} b"
    for text in (chain, "lower(" * deepest + "a" + ")" * deepest, " and ".join(["a"] * 200)):
        assert normal_text(normal_text(text)) == normal_text(text)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_written_in_any_case(name: str) -> None:
    literals = {0: "'day'"} if name == "date_trunc" else dict.fromkeys(FUNCTIONS[name].literal, "'%Y'")
    arguments = [literals.get(place, "a") for place in range(FUNCTIONS[name].least)]
    assert normal_text(f"{name.upper()}({', '.join(arguments)})").startswith(f"{name}(")
