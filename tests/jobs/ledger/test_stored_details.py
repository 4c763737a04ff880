"""Details of stored events are decoded when somebody reads them, with the same values as if decoded at once."""

import json
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from jobs.ledger.events import EventKind, LedgerEvent, checks_fingerprint_of, encode_details, with_checks
from jobs.ledger.later import LaterSequence
from jobs.ledger.projection import project
from jobs.ledger.stored_details import EventPlace, StoredDetails
from jobs.pipeline.slices import slices_between
from jobs.runs import Verdict
from tests.jobs.ledger.test_ledger_view import a_result
from tests.support.fake_replay import day_ms, sales
from tests.support.fuzzing import seeds
from tests.support.ledger_chains import published_chain
from windowlib.errors import LedgerError

NAMES = ("a", "b", "d", "z", 'a"b":')


def stored_details(text: str) -> StoredDetails:
    return StoredDetails(text, EventPlace("/lake/sales/ledger", 3, 1, "checked"))


def random_value(chance: Random, depth: int = 0) -> Any:  # noqa: ANN401 - JSON
    plain = [None, chance.randrange(-5, 5), chance.choice(NAMES), f'{{"{chance.choice(NAMES)}":1}}', chance.random()]
    match chance.randrange(3 if depth < 3 else 1):
        case 0:
            return chance.choice(plain)
        case 1:
            return [random_value(chance, depth + 1) for _ in range(chance.randrange(3))]
        case _:
            return random_details(chance, depth + 1)


def random_details(chance: Random, depth: int = 0) -> dict[str, Any]:
    return {name: random_value(chance, depth) for name in NAMES if chance.random() < 0.5}


def test_every_value_is_the_one_that_was_stored() -> None:
    for seed in seeds(300):
        details = random_details(Random(seed))
        text = encode_details(details)
        for name in NAMES:
            assert stored_details(text).last(name) == details.get(name)
            assert stored_details(text).get(name, "none") == details.get(name, "none")
        stored = stored_details(text)
        assert stored == details
        assert {**stored} == details
        assert (len(stored), repr(stored)) == (len(details), repr(json.loads(text)))
        assert encode_details(stored) == text


def test_a_fold_decodes_no_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = Random(1)
    days = slices_between(sales(), day_ms("2024-01-01"), day_ms("2024-01-06"))
    events = [
        replace(event, details=stored_details(encode_details({**event.details, "checks": [random_details(chance)]})))
        if event.kind is EventKind.CHECKED
        else event
        for event in published_chain(sales(), days, log=a_result(1).log)
    ]
    monkeypatch.setattr(StoredDetails, "_decoded", lambda _: pytest.fail("the details of a check were decoded"))
    assert len(project(events, version=len(events)).published) == 5


def checked(details: Mapping[str, Any]) -> LedgerEvent:
    return LedgerEvent(kind=EventKind.CHECKED, verdict="pass", details=details)


def test_stored_checks_are_those_of_the_result() -> None:
    result = a_result(1)
    details = {"checks": [{**_plain(check)} for check in result.checks], "checks_fingerprint": "suite"}
    event = checked(stored_details(encode_details(details)))
    assert checks_fingerprint_of(event) == checks_fingerprint_of(checked(details)) == "suite"
    found = with_checks(replace(result, verdict=Verdict.ERROR), event)
    assert isinstance(found.checks, LaterSequence)
    assert found == result
    assert [*found.checks] == [*result.checks]
    assert (found.checks[0], len(found.checks), hash(found.checks)) == (result.checks[0], 1, hash(result.checks))


def test_checks_that_cannot_be_read_are_an_error_of_the_ledger() -> None:
    event = checked(stored_details('{"checks":[{"verdict":"maybe"}]}'))
    with pytest.raises(LedgerError) as raised:
        len(with_checks(a_result(1), event).checks)
    assert str(raised.value) == (
        "ledger /lake/sales/ledger has wrong content in event 1 of version 3 (checked): checks[0] has no "
        "slice_id. The hashes are right, so a program has written it so. If that was a newer Hindcast, use its "
        "version; otherwise, restore the ledger's directory from a backup"
    )


def test_details_name_the_ledger_the_event_and_the_value_of_another_type() -> None:
    """Defect: details were decoded when they were read, and their errors did not name the ledger."""
    check = _plain(a_result(1).checks[0]) | {"slice_id": "s", "table": "t"}
    for details, what in (
        ('{"a"', "JSONDecodeError"),
        ("[1]", "details are [1], and must be an object"),
        ('{"clamped":1e999}', "clamped is inf, and must be an integer of 64 bits"),
        ('{"clamped":true}', "clamped is True, and must be an integer of 64 bits"),
        (f'{{"clamped":{10**30}}}', "and must be an integer of 64 bits"),
        ('{"digests":{"window_state":5}}', "digests.window_state is 5, and must be a text"),
        (encode_details({"checks": [check | {"message": []}]}), "checks[0].message is [], and must be a text"),
        (encode_details({"runs": {"r": [check | {"verdict": "maybe"}]}}), "runs.r[0].verdict is 'maybe', and must be "),
        (encode_details({"checks": [check | {"more": 1}]}), "checks[0] has the unknown name 'more'"),
    ):
        with pytest.raises(LedgerError) as raised:
            dict(stored_details(details))
        assert "ledger /lake/sales/ledger has wrong content in event 1 of version 3 (checked): " in str(raised.value)
        assert what in str(raised.value)


def _plain(check: Any) -> dict[str, Any]:  # noqa: ANN401 - a dataclass
    return {name: getattr(check, name) for name in type(check).__slots__} | {"verdict": check.verdict.value}


def test_the_last_value_of_a_text_with_spaces_is_read() -> None:
    assert stored_details('{"a": 1, "z": "last"}').last("z") == "last"
