"""The loader refuses what Great Expectations would drop, execute, or decide differently on its two engines."""

import json
from pathlib import Path
from typing import Any

import pytest

from expectations import arguments
from expectations.loader import EXPECTATIONS_DIR, check_suite_file, load_suite_file, resolve_suite, suite_directory
from windowlib.errors import SpecError

NOT_NULL: dict[str, Any] = {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "kind"}}


def write(directory: Path, document: object, name: str = "s.json") -> Path:
    path = directory / name
    path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return path


def suite_of(*expectations: object, table: str = "window_outputs") -> dict[str, Any]:
    return {table: {"name": "s", "expectations": list(expectations)}}


@pytest.mark.parametrize("name", ["flights", "rotations", "carriers"])
def test_the_suites_of_this_repository_load_with_all_their_checks(name: str) -> None:
    path = EXPECTATIONS_DIR / f"{name}.json"
    loaded = check_suite_file(path)
    raw = json.loads(path.read_text(encoding="utf-8"))
    assert {suite.table: len(suite.checks) for suite in loaded} == {
        table: len(raw[table]["expectations"]) for table in raw
    }
    assert set(loaded.suites) == {"window_outputs", "late_records", "run"}
    assert all(check.description for suite in loaded for check in suite.checks)


def test_more_than_a_quarter_of_cancelled_flights_fails_a_critical_check() -> None:
    checks = load_suite_file(EXPECTATIONS_DIR / "flights.json").suites["run"].checks
    (cancelled,) = [check for check in checks if check.columns == ("invalid_share",)]
    assert (cancelled.severity, json.loads(cancelled.arguments)) == ("critical", {"max_value": 0.25})
    assert "no departure time" in cancelled.description


def test_the_content_of_a_file_ignores_white_space_and_key_order(tmp_path: Path) -> None:
    tight = write(tmp_path, suite_of(NOT_NULL))
    loose = write(tmp_path, json.dumps(suite_of(dict(reversed(NOT_NULL.items()))), indent=7), "loose.json")
    assert load_suite_file(tight).content == load_suite_file(loose).content


def test_a_file_of_an_editor_of_windows_is_read(tmp_path: Path) -> None:
    """Defect: a pipeline file may begin with a byte order mark, and a suite was refused for it."""
    text = json.dumps(suite_of(NOT_NULL), indent=1)
    marked = write(tmp_path, "\ufeff" + text.replace("\n", "\r\n"), "marked.json")
    assert load_suite_file(marked).content == load_suite_file(write(tmp_path, text)).content


def comparison(**changes: object) -> dict[str, Any]:
    whole = {"type": "comparison", "column": {"name": "kind"}, "operator": "==", "parameter": "result"}
    return whole | changes


def with_condition(condition: object) -> dict[str, Any]:
    return suite_of(NOT_NULL | {"kwargs": {"column": "kind", "row_condition": condition}})


DAY = "2013-02-08"
BETWEEN = "expect_column_values_to_be_between"
IN_SET = "expect_column_values_to_be_in_set"
REFUSALS: dict[str, tuple[object, list[str]]] = {
    "a misspelt type": (
        suite_of(NOT_NULL, NOT_NULL | {"type": "expect_column_values_to_not_be_nul"}),
        ["window_outputs: expectation 1", "'expect_column_values_to_not_be_nul'", "did you mean", NOT_NULL["type"]],
    ),
    "a misspelt argument": (
        suite_of(NOT_NULL | {"kwargs": {"colum": "kind"}}),
        ["expectation 0", "unknown argument 'colum'", "did you mean column"],
    ),
    "an argument of GX's own machinery": (
        suite_of(NOT_NULL | {"kwargs": {"column": "kind", "catch_exceptions": False}}),
        ["unknown argument 'catch_exceptions'"],
    ),
    "a missing argument": (suite_of(NOT_NULL | {"kwargs": {}}), ["lacks column"]),
    "an unknown key": (suite_of(NOT_NULL | {"severty": "info"}), ["unknown key 'severty'", "did you mean severity"]),
    "an unknown severity": (suite_of(NOT_NULL | {"severity": "fatal"}), ["'fatal'", "critical, warning, info"]),
    "an unknown table": ({"windows": {}}, ["unknown table 'windows'", "did you mean window_outputs"]),
    "no table": ({}, ["has no suite"]),
    "a list": ([NOT_NULL], ["has no suite"]),
    "no expectations": (suite_of(), ["window_outputs", "has no expectations"]),
    "no name": ({"run": {"expectations": [NOT_NULL]}}, ["has the name None"]),
    "an expectation that is a text": (suite_of("expect_column_to_exist"), ["expectation 0", "is a text"]),
    "SQL": (
        suite_of({"type": "unexpected_rows_expectation", "kwargs": {"unexpected_rows_query": "DROP TABLE {batch}"}}),
        ["unexpected_rows_expectation is refused", "SQL"],
    ),
    "quantiles": (
        suite_of({"type": "expect_column_quantile_values_to_be_between", "kwargs": {"column": "kind"}}),
        ["is refused", "numpy 2", "expect_column_median_to_be_between"],
    ),
    "a condition in SQL": (
        with_condition("kind = 'x' OR reflect('java.lang.System','exit',1)"),
        ["row_condition", "is code"],
    ),
    "a condition passed through": (
        with_condition({"type": "pass_through", "pass_through_filter": "1=1"}),
        ["'pass_through'", "comparison, nullity"],
    ),
    "a condition's column with a backtick": (with_condition(comparison(column={"name": "a`b"})), ["backtick"]),
    **{
        f"a condition on a column named {name}": (
            with_condition(comparison(column={"name": name})),
            [f"'{name}', which"],
        )
        for name in ("datetime", "inf", "Inf")
    },
    "a condition's operator": (with_condition(comparison(operator="LIKE")), ["'LIKE'"]),
    "a condition with an unknown key": (with_condition(comparison(sql="x")), ["sql"]),
    "a condition on a time": (with_condition(comparison(parameter="2013-02-08T05:00:00")), ["is a time", "zones"]),
    "an or inside an and": (
        with_condition({"type": "and", "conditions": [{"type": "or", "conditions": [comparison()]}]}),
        ["an or inside an and"],
    ),
    "no bound": (suite_of({"type": BETWEEN, "kwargs": {"column": "rank"}}), ["has none of min_value, max_value"]),
    **{
        f"a null as {name}": (
            suite_of({"type": kind, "kwargs": {"column": "rank", "max_value": 5, name: None}}),
            [name],
        )
        for name, kind in {"mostly": BETWEEN, "strict_min": "expect_column_max_to_be_between"}.items()
    },
    **{
        f"a check that cannot fail: {kwargs}": (
            suite_of({"type": f"expect_{kind}_to_be_between", "kwargs": kwargs}),
            ["accepts everything"],
        )
        for kind, kwargs in (
            ("column_values", {"column": "rank", "min_value": 1, "mostly": 0}),
            ("column_proportion_of_unique_values", {"column": "rank", "min_value": 0, "max_value": 1.0}),
            ("table_row_count", {"min_value": 0, "max_value": None}),
        )
    },
    "reversed bounds": (
        suite_of({"type": BETWEEN, "kwargs": {"column": "rank", "min_value": 2, "max_value": 1}}),
        ["min_value = 2", "max_value = 1"],
    ),
    "reversed times": (
        suite_of(
            {"type": BETWEEN, "kwargs": {"column": "rank", "min_value": f"{DAY} 06:00", "max_value": f"{DAY}T05:00"}}
        ),
        ["min_value = '2013-02-08 06:00'", "max_value = '2013-02-08T05:00'"],
    ),
    "a bound that is not exact as a double": (
        suite_of({"type": BETWEEN, "kwargs": {"column": "rank", "max_value": 2**53}}),
        ["9007199254740992", "2^53"],
    ),
    "a bound that is a parameter": (
        suite_of({"type": BETWEEN, "kwargs": {"column": "rank", "max_value": {"$PARAMETER": "x"}}}),
        ["max_value", "$PARAMETER"],
    ),
    "a time with an offset": (
        suite_of({"type": BETWEEN, "kwargs": {"column": "window_start", "min_value": "2013-01-01T00:00:00+02:00"}}),
        ["offset", "UTC"],
    ),
    **{
        f"the time {time}": (
            suite_of({"type": BETWEEN, "kwargs": {"column": "window_start", "min_value": time}}),
            ["is not a date with a time", "2013-02-08T00:00:00"],
        )
        for time in (
            "2013-01-01",
            "2024-W01-2T00:00",
            "20240102T000000",
            "2024-01-02T000000",
            "2024-01-02T00",
            "2024-01-02T00:00:00,5",
        )
    },
    "a pair with nulls judged": (
        suite_of(
            {
                "type": "expect_column_pair_values_to_be_equal",
                "kwargs": {"column_A": "window_start", "column_B": "window_end", "ignore_row_if": "neither"},
            }
        ),
        ["ignore_row_if", "either_value_is_missing"],
    ),
    "the index 0": (
        suite_of({"type": "expect_column_to_exist", "kwargs": {"column": "rank", "column_index": 0}}),
        ["column_index = 0 is ignored by Great Expectations; leave it out"],
    ),
    "a pair of one column": (
        suite_of({"type": "expect_column_pair_values_to_be_equal", "kwargs": {"column_A": "rank", "column_B": "rank"}}),
        ["compares the column 'rank' with itself; name two columns"],
    ),
    "a broken regular expression": (
        suite_of({"type": "expect_column_values_to_match_regex", "kwargs": {"column": "kind", "regex": "("}}),
        ["regex", "not a regular expression"],
    ),
    **{
        f"the regular expression {regex[:20]}": (
            suite_of({"type": "expect_column_values_to_match_regex", "kwargs": {"column": "kind", "regex": regex}}),
            ["regex = ", reason],
        )
        for regex, reason in {
            "^.{1,2000}$": "is refused by RE2, which Great Expectations asks about most texts: invalid repetition size",
            "(a{30}){40}": "is refused by RE2",
            "a{" + "9" * 5_000 + "}": "is not a regular expression",
            "^[[:upper:]]{3}$": "has a POSIX class, which Python reads as single characters; write [0-9]",
            "[^x[:digit:]]": "has a POSIX class",
            "a{,2}$": "has {,n}, which RE2 reads as a text; write {0,n}",
            **dict.fromkeys(["(?ix) a", "(?#c)a", r"\é", "a++", "x*+", "x?+", "(?>a+)b"], "is refused by RE2"),
            **dict.fromkeys(["(a)?(?(1)b|c)", r"[\b]", "(?-x:a)", r"(?a)\w", r"(?u)\w"], "is refused by RE2"),
            r"a\B": r"has \B, which RE2 finds in an empty text",
            "(" * 3_000 + ")" * 3_000: "has more than 100 opening brackets",
            "[" * 50_000: "has 50,000 characters; at most 10,000 are allowed",
        }.items()
    },
    "values of two kinds": (suite_of({"type": IN_SET, "kwargs": {"column": "kind", "value_set": [1, "1"]}}), ["mixes"]),
    "a value that is not exact as a double, beside one that is": (
        suite_of({"type": IN_SET, "kwargs": {"column": "rank", "value_set": [2**53 - 2, 2**53]}}),
        ["has the item 9007199254740992", "2^53"],
    ),
    "an unknown column of run": (
        suite_of(NOT_NULL | {"kwargs": {"column": "invalid_shar"}}, table="run"),
        ["'invalid_shar'", "did you mean invalid_share"],
    ),
}


def test_regular_expressions_that_every_engine_reads_alike_are_accepted() -> None:
    alike = [
        r"\{,2}",
        "[{,2}]",
        "[:a]",
        r"\[[:a:]",
        "a{2,}",
        "a{0,1000}",
        "[(?#]",
        r"\(?x",
        r"\\é",
        "(?i)x",
        "(?:x)",
        r"a\Z",
        r"(?=a)(a)\1",
        r"\s\u00e9",
    ]
    assert [pattern for pattern in alike if arguments.regex(pattern)] == []


def test_checks_at_the_ends_that_can_fail_are_accepted(tmp_path: Path) -> None:
    kwargs = [
        {"min_value": 0, "strict_min": True},
        {"min_value": 0, "max_value": 0},
        {"max_value": 5, "min_value": None},
    ]
    checks = [{"type": "expect_table_row_count_to_be_between", "kwargs": own} for own in kwargs]
    [suite] = check_suite_file(write(tmp_path, suite_of(*checks)))
    assert len(suite.checks) == len(checks)


@pytest.mark.parametrize("case", REFUSALS)
def test_a_mistake_is_refused_with_its_place_and_advice(case: str, tmp_path: Path) -> None:
    document, expected = REFUSALS[case]
    path = write(tmp_path, document)
    with pytest.raises(SpecError) as refused:
        check_suite_file(path)
    assert str(refused.value).startswith(f"{path}:")
    for part in expected:
        assert part in str(refused.value)


RAW: dict[str, tuple[str, str]] = {
    "a key twice": ('{"run": {"name": "a", "name": "b", "expectations": []}}', "'name' appears twice"),
    "NaN": ('{"run": {"name": "a", "meta": NaN}}', "NaN"),
    "a number beyond doubles": ('{"run": 1e999}', "double"),
    "a number of 5,000 digits": ('{"run": ' + "9" * 5_000 + "}", "5000 digits"),
    "100,000 levels": ("[" * 100_000, "nested deeper than 32"),
    "two megabytes": ('{"run": "' + "x" * 2_000_000 + '"}', "larger than 1,000,000 bytes"),
    "half of a character": (r'{"run": {"name": "\ud83d", "notes": "\ud83d\ude00"}}', "'.ud83d' is a surrogate"),
    "half of a character as a key": (r'{"\ude00": {}}', "'.ude00' is a surrogate"),
    "no JSON": ("run: {}", ":1:1: is not JSON"),
    "200,000 quotes of strings without an end": ('\\"' * 200_000, ":1:1: is not JSON"),
}


@pytest.mark.parametrize("case", RAW)
def test_json_that_parsers_would_change_silently_is_refused(case: str, tmp_path: Path) -> None:
    text, expected = RAW[case]
    with pytest.raises(SpecError, match=expected.replace("'", ".").replace("(", ".")):
        load_suite_file(write(tmp_path, text))


def test_brackets_in_texts_do_not_count_as_nesting(tmp_path: Path) -> None:
    assert load_suite_file(write(tmp_path, suite_of(NOT_NULL | {"description": '\\"[{' * 100}))).suites


@pytest.mark.parametrize("text", ["expectations/a.json", "a.json", "sub/b.json"])
def test_a_suite_is_found_inside_its_directory(text: str, tmp_path: Path) -> None:
    root = tmp_path / "expectations"
    (root / "sub").mkdir(parents=True)
    for name in ("a.json", "sub/b.json"):
        (root / name).write_text("{}", encoding="utf-8")
    assert resolve_suite(text, root=root).is_file()
    assert resolve_suite(str(root / "a.json"), root=root) == root / "a.json"


def test_the_directory_of_suites_is_found_from_the_pipeline_file(tmp_path: Path) -> None:
    file = tmp_path / "project" / "pipelines" / "sales.yaml"
    file.parent.mkdir(parents=True)
    assert suite_directory(None, {}) == EXPECTATIONS_DIR
    assert suite_directory(file.parent, {}) == EXPECTATIONS_DIR
    (beside_the_folder := tmp_path / "project" / "expectations").mkdir()
    assert suite_directory(file.parent, {}) == beside_the_folder
    (beside_the_file := file.parent / "expectations").mkdir()
    assert suite_directory(file.parent, {}) == beside_the_file
    (chosen := tmp_path / "suites").mkdir()
    assert suite_directory(file.parent, {"HINDCAST_EXPECTATIONS": str(chosen)}) == chosen
    (chosen / "sales.json").write_text("{}", encoding="utf-8")
    for text in ("sales.json", "expectations/sales.json"):
        assert resolve_suite(text, root=chosen) == chosen / "sales.json"
    with pytest.raises(SpecError, match=r"HINDCAST_EXPECTATIONS is .*not a directory"):
        suite_directory(file.parent, {"HINDCAST_EXPECTATIONS": str(tmp_path / "nowhere")})


@pytest.mark.parametrize(
    "text",
    [
        "../secret.json",
        "expectations/../../secret.json",
        "sub/../../secret.json",
        "/etc/passwd",
        "link.json",
        "a",
        "",
        "a\0.json",
    ],
)
def test_a_suite_path_cannot_leave_its_directory(text: str, tmp_path: Path) -> None:
    root = tmp_path / "expectations"
    root.mkdir()
    (tmp_path / "secret.json").write_text("{}", encoding="utf-8")
    (root / "link.json").symlink_to(tmp_path / "secret.json")
    with pytest.raises(SpecError, match=r"outside|not a \.json|does not exist"):
        resolve_suite(text, root=root)
    with pytest.raises(SpecError, match="cannot be read"):
        load_suite_file(root / f"{'a' * 300}.json")
    with pytest.raises(SpecError, match=r"cannot be read in .*: File name too long"):
        resolve_suite(f"{'a' * 300}.json", root=root)


def test_times_are_in_order_however_they_are_written(tmp_path: Path) -> None:
    kwargs = {"column": "window_start", "min_value": f"{DAY}T05:00", "max_value": f"{DAY} 06:00"}
    assert load_suite_file(write(tmp_path, suite_of({"type": BETWEEN, "kwargs": kwargs}))).suites


def test_the_columns_of_a_known_table_are_checked(tmp_path: Path) -> None:
    path = write(tmp_path, with_condition(comparison(column={"name": "knd"})))
    assert check_suite_file(path).suites
    with pytest.raises(SpecError, match=r"'knd'.*did you mean kind"):
        check_suite_file(path, columns={"window_outputs": ["kind", "origin"]})


def test_a_check_of_the_set_of_columns_does_not_hide_the_columns_of_the_others(tmp_path: Path) -> None:
    columns = {"window_outputs": ["kind", "origin"]}
    shape = {"type": "expect_table_columns_to_match_set", "kwargs": {"column_set": ["other"]}}
    assert check_suite_file(write(tmp_path, suite_of(shape, NOT_NULL)), columns=columns).suites
    exists = {"type": "expect_column_to_exist", "kwargs": {"column": "orign"}}
    unknown = NOT_NULL | {"kwargs": {"column": "knd"}}
    for check, name in ((unknown, "knd"), (exists, "orign")):
        with pytest.raises(SpecError, match=f"the column '{name}'"):
            check_suite_file(write(tmp_path, suite_of(shape, check)), columns=columns)


def test_conditions_that_great_expectations_refuses_are_refused() -> None:
    flags = {"type": "comparison", "column": {"name": "late"}, "operator": "IN", "parameter": [True, False]}
    assert "booleans" in str(arguments.condition(flags))
    one = {"type": "nullity", "column": {"name": "late"}, "is_null": True}
    assert arguments.condition({"type": "and", "conditions": [one] * 100}) is None
    assert "has 101 conditions" in str(arguments.condition({"type": "and", "conditions": [one] * 101}))
