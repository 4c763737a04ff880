"""The messages with a time: what is missing and why, what is told once, and the digest, by the clock of the test."""

import shutil
from datetime import date, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from jobs.engine import fingerprints
from jobs.lake.lake import Lake
from jobs.orchestration.alerts import Alert, Event, held_alert
from jobs.orchestration.deadlines import Checked, Told, look
from jobs.orchestration.gating import Gate
from jobs.orchestration.outcomes import RequestOutcome
from jobs.orchestration.requests import run_request
from jobs.planning.request_context import Asked, RequestContext, open_request, open_request_context
from jobs.publishing.decisions import cancel, resume, rollback
from jobs.publishing.optimistic_check import By
from jobs.review.freshness import Freshness, freshness, last_tick_ms
from jobs.review.pages.state import held_slices
from tests.support.fake_replay import BREAKS, FAILS, PIPELINE, FakeReplayer, append_day, day_ms, sales
from tests.support.waiving import waive_newest

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
ALERTS = """
alerts:
  to: chat
  data_not_there_by: "07:00"
  not_published_by: "08:00"
  digest_at: "09:00"
  held_longer_than: 4h
"""


class Place:
    """A pipeline with its clock, and the run of `alert_sales` that keeps what it has told."""

    def __init__(self, root: Path) -> None:
        self.root, self.now_ms, self.text = root, day_ms("2024-01-03"), PIPELINE + ALERTS
        self.told = Told.read(None)
        for day in ("2024-01-01", "2024-01-02"):
            append_day(root, day, {"a": 1})
        self.run("2024-01-01", "2024-01-03")

    @property
    def work(self) -> RequestContext:
        return open_request_context(sales(self.text), Lake(root=str(self.root)), now_ms=lambda: self.now_ms)

    def run(self, start: str, end: str, *, publish: bool = True) -> RequestOutcome:
        asked = Asked(from_ms=day_ms(start), to_ms=day_ms(end), who="me", reason="test")
        return run_request(self.work, asked, FakeReplayer(), publish=publish)

    def at(self, text: str) -> "list[Alert]":
        """The messages that a run at this time sends."""
        day, _, time = text.partition("T")
        self.now_ms = day_ms(day) + int(time[:2]) * HOUR_MS + int(time[3:]) * 60_000
        found = self.look()
        self.told = Told.read(found.told.to_json())
        return [one.alert for one in found.messages]

    def look(self, *, everything: bool = False, broken: str = "") -> Checked:
        alerts = self.work.pipeline.alerts
        assert alerts is not None
        return look(self.work, alerts, self.told, url=lambda path: path, everything=everything, broken=broken)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    place.at("2024-01-03T09:00")  # what happened before is told
    return place


@pytest.mark.slow
def test_a_publication_of_a_clock_that_was_ahead_is_news_until_the_digest_after_the_next_one(place: Place) -> None:
    """The clock was a month ahead when an empty day was published."""
    place.now_ms = day_ms("2024-02-05")
    place.run("2024-01-03", "2024-01-04")
    digests = []
    for day in ("2024-01-05", "2024-01-06", "2024-01-07"):
        place.now_ms = day_ms(day)
        append_day(place.root, before(day), {"a": 1})
        place.run(before(day), day)
        digests.append([alert.subject for alert in place.at(f"{day}T09:00") if "published" in alert.subject])
    both = ["sales: 2024-01-03 published empty", "sales: 2 published, 1 empty"]
    assert digests == [both, ["sales: 1 published"], ["sales: 1 published"]]


@pytest.mark.slow
def test_a_clock_that_went_back_hides_no_publication_from_the_digest(place: Place) -> None:
    """Defect: the time of one publication, years ago, told that those before it were older than the last digest."""
    for day, now in (("2024-01-04", "2024-01-04"), ("2024-01-05", "2019-01-01"), ("2024-01-06", "2024-01-06")):
        append_day(place.root, before(day), {"a": 1})
        place.now_ms = day_ms(now)
        place.run(before(day), day)
    digest_of_both = place.at("2024-01-06T09:00")[-1].subject
    assert digest_of_both == "sales: 3 published"
    assert place.at("2024-01-07T09:00")[-1].subject == "sales: 1 waiting"


def test_the_digest_tells_what_was_taken_back(place: Place) -> None:
    work = place.work
    rollback(work, work.ledger.view().standing[-1].seq, reason="bad rows", who="bob")
    resume(work, reason="go on", who="bob")
    assert place.at("2024-01-04T09:00")[-1].subject.startswith("sales: 2 taken back")


@pytest.mark.parametrize(("amount", "to_do"), [(FAILS, "Then waive them"), (BREAKS, "cannot be waived")])
def test_an_error_is_not_to_be_waived(place: Place, amount: int, to_do: str) -> None:
    append_day(place.root, "2024-01-03", {"a": amount})
    place.now_ms = day_ms("2024-01-04")
    place.run("2024-01-03", "2024-01-04")
    [long] = [alert for alert in place.at("2024-01-04T06:00") if alert.event is Event.HELD_LONG]
    assert to_do in long.text
    gate = Gate(held=tuple(place.work.ledger.view().newest_runs().values())[-1:])
    assert to_do in held_alert("sales", gate, url="").text


def before(day: str) -> str:
    return str(date.fromisoformat(day) - timedelta(days=1))


def told(alerts: list[Alert]) -> list[tuple[Event, str]]:
    return [(one.event, one.subject.removeprefix("sales: ")) for one in alerts]


def test_each_time_of_day_is_looked_at_once_by_the_first_run_at_or_after_it(place: Place) -> None:
    assert place.at("2024-01-04T06:30") == []
    assert [one.event for one in place.at("2024-01-04T07:00")] == [Event.NOT_THERE]
    assert place.at("2024-01-04T07:30") == []
    assert [one.event for one in place.at("2024-01-04T11:00")] == [Event.NOT_PUBLISHED, Event.DIGEST]
    assert place.at("2024-01-04T11:30") == []
    assert len(place.look(everything=True).messages) == 3


def test_a_clock_behind_the_schedulers_delays_the_first_message_by_a_day_and_no_further_one(place: Place) -> None:
    """Defect: each look before its time of day was the first one for ever, so no message was ever sent."""
    place.text = PIPELINE + "\nalerts: {to: chat, not_published_by: '08:00', digest_at: '08:00'}\n"
    place.told = Told.read(None)
    assert place.at("2024-01-04T07:59") == []
    for day in ("2024-01-05", "2024-01-06"):
        events = [alert.event for alert in place.at(f"{day}T07:59")]
        assert events == [Event.NOT_PUBLISHED, Event.DIGEST], day


def test_a_day_that_has_not_arrived_is_told_as_such(place: Place) -> None:
    [alert] = place.at("2024-01-04T07:00")
    assert told([alert]) == [(Event.NOT_THERE, "2024-01-03: the data is not there")]
    assert "the newest record is in 2024-01-02" in alert.text
    assert "2024-01-03: no data has arrived" in alert.text
    [alert] = place.at("2024-01-04T08:00")
    assert told([alert]) == [(Event.NOT_PUBLISHED, "2024-01-03 not visible to readers")]
    assert "2024-01-03: no data has arrived" in alert.text


def test_a_day_that_arrived_in_time_is_told_by_nobody(place: Place) -> None:
    append_day(place.root, "2024-01-03", {"a": 1})
    assert place.at("2024-01-04T07:00") == []
    [alert] = place.at("2024-01-04T08:00")
    assert "2024-01-03: complete, but no request has replayed it; perhaps the DAG is paused" in alert.text
    place.run("2024-01-03", "2024-01-04")
    place.told = Told.read(None)
    assert place.at("2024-01-04T08:30") == []
    assert [one.event for one in place.at("2024-01-04T09:00")] == [Event.DIGEST]


def test_a_schedule_that_stops_because_the_code_has_changed_is_told_so(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_day(place.root, "2024-01-03", {"a": 1})
    monkeypatch.setattr(fingerprints, "SEMANTICS_VERSION", fingerprints.SEMANTICS_VERSION + 1)
    [alert] = place.at("2024-01-04T08:00")
    assert "a function or Hindcast itself has changed since" in alert.text
    assert "`hindcast adopt sales`" in alert.text
    assert "paused" not in alert.text


def test_an_outage_is_told_each_day_because_each_day_a_slice_is_missing(place: Place) -> None:
    assert told(place.at("2024-01-04T07:00")) == [(Event.NOT_THERE, "2024-01-03: the data is not there")]
    [alert, *_] = place.at("2024-01-06T07:00")
    assert alert.subject == "sales: 2024-01-03 … 2024-01-05 (3 slices): the data is not there"
    assert "2024-01-03 … 2024-01-05 (3 slices): no data has arrived" in alert.text
    place.now_ms += DAY_MS
    place.told = Told(times={}, causes=place.told.causes | {"no data 2024-01-06"})
    assert Event.NOT_THERE not in [one.alert.event for one in place.look().messages], "its cause was told"


def test_a_clock_that_was_ahead_leaves_out_no_message(place: Place) -> None:
    assert Event.NOT_PUBLISHED in [event for event, _ in told(place.at("2024-01-05T12:00"))], "26 hours ahead"
    assert [event for event, _ in told(place.at("2024-01-04T10:30"))].count(Event.NOT_PUBLISHED) == 1
    assert place.at("2024-01-04T12:00") == []
    assert (Event.NOT_PUBLISHED, "2024-01-03 … 2024-01-04 (2 slices) not visible to readers") in told(
        place.at("2024-01-05T08:00")
    )


def test_after_a_clock_was_ahead_the_first_look_need_not_be_on_the_day_of_the_deadline(place: Place) -> None:
    """Looks at 06:00 never see a deadline of 08:00 on its own day."""
    place.at("2024-01-05T12:00")
    for day in ("2024-01-04", "2024-01-05"):
        assert Event.NOT_PUBLISHED in [event for event, _ in told(place.at(f"{day}T06:00"))], day


def test_a_slice_published_empty_counts_as_missing_and_is_told_once(place: Place) -> None:
    """A day without data, such as a holiday, is told by the first check after its publication."""
    place.at("2024-01-04T09:00")
    append_day(place.root, "2024-01-04", {"a": 1})
    place.now_ms = day_ms("2024-01-05") + HOUR_MS
    place.run("2024-01-03", "2024-01-05")
    assert Event.NOT_THERE not in [one.event for one in place.at("2024-01-05T07:00")]
    [alert] = place.at("2024-01-05T08:00")
    assert told([alert]) == [(Event.NOT_PUBLISHED, "2024-01-03 published empty")]
    assert "2024-01-03: published empty, without a record" in alert.text
    append_day(place.root, "2024-01-05", {"a": 1})
    place.now_ms = day_ms("2024-01-06") + HOUR_MS
    place.run("2024-01-05", "2024-01-06")
    assert Event.NOT_PUBLISHED not in [one.event for one in place.at("2024-01-06T08:00")]


def test_a_held_slice_is_told_with_the_time_since_when(place: Place) -> None:
    append_day(place.root, "2024-01-03", {"z": FAILS})
    place.now_ms = day_ms("2024-01-04") + HOUR_MS
    place.run("2024-01-03", "2024-01-04")
    alerts = place.at("2024-01-04T08:00")
    assert [one.event for one in alerts] == [Event.NOT_PUBLISHED, Event.HELD_LONG]
    assert "2024-01-03: held since 2024-01-04 01:00:00 UTC: window_outputs: total: failed" in alerts[0].text


def test_a_slice_is_held_since_its_open_request_and_not_since_one_that_was_cancelled(place: Place) -> None:
    """The second request takes over the run of the first one, two weeks later."""
    append_day(place.root, "2024-01-03", {"z": FAILS})
    place.now_ms = day_ms("2024-01-04")
    request_id = place.run("2024-01-03", "2024-01-04").request_id
    cancel(place.work, request_id, reason="later", by=By(who="bob", decision_id="d1"))
    place.now_ms = day_ms("2024-01-18")
    place.run("2024-01-03", "2024-01-04")
    [held_slice] = held_slices(place.work.ledger.view())
    assert held_slice.since_ms == place.now_ms


@pytest.mark.slow
def test_a_slice_that_is_held_too_long_is_told_once_and_again_when_another_run_is_held(place: Place) -> None:
    append_day(place.root, "2024-01-03", {"z": FAILS})
    place.now_ms = day_ms("2024-01-04") + 10 * HOUR_MS
    request_id = place.run("2024-01-03", "2024-01-04").request_id
    place.at("2024-01-04T10:00")
    assert place.at("2024-01-04T13:30") == []
    [alert] = place.at("2024-01-04T14:00")
    assert told([alert]) == [(Event.HELD_LONG, "2024-01-03 held for more than 4 h")]
    assert "2024-01-03 since" in alert.text
    assert alert.url.endswith(f"requests/{request_id}")
    assert place.at("2024-01-04T14:30") == place.at("2024-01-04T20:00") == []
    append_day(place.root, "2024-01-03", {"y": 1})
    place.run("2024-01-03", "2024-01-04")
    assert place.at("2024-01-04T23:30") == []
    assert [one.event for one in place.at("2024-01-05T00:00")] == [Event.HELD_LONG]
    waive_newest(place.work, "2024-01-03", reason="real", who="me")
    assert place.look().told.causes == {one for one in place.told.causes if one.startswith("no data")}


@pytest.mark.parametrize("is_live", [True, False])
def test_a_slice_of_an_open_request_is_told_with_the_request(place: Place, *, is_live: bool) -> None:
    append_day(place.root, "2024-01-03", {"a": 1})
    place.now_ms = day_ms("2024-01-04") + HOUR_MS
    if is_live:
        open_request(place.work, Asked(from_ms=day_ms("2024-01-03"), to_ms=day_ms("2024-01-04"), who="me", reason="x"))
    else:
        place.run("2024-01-03", "2024-01-04", publish=False)
    text = place.at("2024-01-04T08:00")[-1].text
    assert ("2024-01-03: being replayed by request" if is_live else "2024-01-03: staged by request") in text


def test_a_rolled_back_chain_is_told_with_the_person(place: Place) -> None:
    rollback(place.work, place.work.ledger.view().standing[-1].seq, reason="too early", who="bob")
    alert = place.at("2024-01-04T08:00")[-1]
    assert "held: bob rolled back publication" in alert.text
    assert alert.slices == ("2024-01-01", "2024-01-02", "2024-01-03")


def test_the_digest_tells_the_news_since_the_digest_before(place: Place) -> None:
    append_day(place.root, "2024-01-02", {"b": 5})
    append_day(place.root, "2024-01-03", {"c": 1})
    place.now_ms = day_ms("2024-01-04") + HOUR_MS
    place.run("2024-01-02", "2024-01-04")
    append_day(place.root, "2024-01-01", {"d": 1})
    [alert] = place.at("2024-01-04T09:00")
    assert alert.event is Event.DIGEST
    assert alert.subject == "sales: 1 published, 1 restated, 1 changed"
    for line in (
        "Since 2024-01-03 09:00:00 UTC:",
        "  Freshness: newest record 2024-01-03, on schedule; newest published slice 2024-01-03, on schedule",
        "  Published: 1 slice: 2024-01-03",
        "  Late: 0 % of 3 records",
        "  Restated: 1 slice: 2024-01-02",
        "  Held: none",
        "  Waiting: none",
        "  Left out: none",
        "  Empty: none",
        "  Changed in the log: 1 slice: 2024-01-01",
    ):
        assert line in alert.lines, alert.text
    [quiet] = [one for one in place.at("2024-01-05T09:00") if one.event is Event.DIGEST]
    assert "Published: none" in quiet.text
    assert "newest record 2024-01-03, 1 day behind the schedule" in quiet.text


def test_an_empty_log_with_a_first_slice_is_missing_from_it_on(tmp_path: Path) -> None:
    append_day(tmp_path, "2024-01-01", {})
    text = PIPELINE.replace("slice: {by: day}", 'slice: {by: day, first: "2024-01-01"}') + ALERTS
    work = open_request_context(
        sales(text), Lake(root=str(tmp_path)), now_ms=lambda: day_ms("2024-01-03") + 8 * HOUR_MS
    )
    assert work.pipeline.alerts is not None
    found = look(work, work.pipeline.alerts, Told.read(None), url=str)
    missing = [one.alert for one in found.messages if one.alert.event is not Event.DIGEST]
    assert [one.slices for one in missing] == [("2024-01-01", "2024-01-02")] * 2
    assert "no slice has a record" in missing[0].text


def test_a_log_that_is_gone_is_told_once_a_day(place: Place) -> None:
    shutil.rmtree(place.root / "event_logs")
    alerts = place.at("2024-01-04T09:00")
    assert [one.event for one in alerts] == [Event.NOT_THERE, Event.NOT_PUBLISHED, Event.DIGEST]
    assert all("Where the pipeline stands is not known:" in alerts[index].text for index in (0, 2))
    assert alerts[1].subject == "sales: 2024-01-03 not visible to readers"
    assert "2024-01-03: event log" in alerts[1].text
    assert place.at("2024-01-04T09:30") == []


def test_days_that_wait_for_a_decision_on_an_erasure_are_told_with_its_commit_and_the_command(place: Place) -> None:
    append_day(place.root, "2024-01-03", {"a": 1, "b": 1})
    DeltaTable(str(place.root / "event_logs" / "sales")).delete("key = 'b'")
    [alert] = place.at("2024-01-05T08:00")[1:2]
    assert told([alert]) == [(Event.NOT_PUBLISHED, "2024-01-03 … 2024-01-04 (2 slices) not visible to readers")]
    assert "commit 3 (DELETE) removed or changed records of slice 2024-01-03" in alert.text
    assert "`hindcast accept-rewrite PIPELINE --reason …`" in alert.text
    assert alert.slices == ("2024-01-03", "2024-01-04")


@pytest.mark.parametrize("zone", ["America/New_York", "Pacific/Auckland"])
def test_an_edited_time_zone_changes_no_message_until_it_is_adopted(place: Place, zone: str) -> None:
    """The schedule goes on with the published slices. Those of the file end later or earlier."""
    place.text = place.text.replace("slice: {by: day}", f"slice: {{by: day, timezone: {zone}}}")
    place.now_ms = day_ms("2024-01-03") + 8 * HOUR_MS
    place.told = Told.read(None)
    assert [one.alert.event for one in place.look(everything=True).messages] == [Event.DIGEST]
    [alert] = place.at("2024-01-04T08:00")[1:2]
    assert told([alert]) == [(Event.NOT_PUBLISHED, "2024-01-03 not visible to readers")]


def test_a_broken_file_is_told_once_a_day(place: Place) -> None:
    def subjects(text: str) -> list[str]:
        place.now_ms = day_ms(text[:10]) + int(text[11:]) * HOUR_MS
        found = place.look(broken="sales.yaml: lgo: \x1b is not allowed")
        place.told = found.told
        return [message.alert.subject for message in found.messages if message.alert.event is Event.FAILED]

    assert subjects("2024-01-04T09") == ["sales: the pipeline file is broken"]
    assert subjects("2024-01-04T10") == []
    assert subjects("2024-01-05T00") == ["sales: the pipeline file is broken"]
    [first, *_] = place.look(everything=True, broken="sales.yaml: lgo: \x1b is not allowed").messages
    assert "sales.yaml: lgo: \\x1b is not allowed" in first.alert.text


def test_freshness_of_an_empty_log_names_what_is_missing() -> None:
    empty = Freshness(newest_record=None, record_behind=2, newest_published=None, published_behind=2, unit="day")
    assert empty.text == "no record yet, 2 days behind the schedule; no slice published yet, 2 days behind the schedule"


def test_freshness_is_against_the_last_time_of_the_schedule(place: Place) -> None:
    def shown(text: str) -> str:
        place.at(text)
        return freshness(place.work, place.work.ledger.view()).text

    behind = (
        "newest record 2024-01-02, {0} behind the schedule; newest published slice 2024-01-02, {0} behind the schedule"
    )
    assert (
        shown("2024-01-04T05:59")
        == "newest record 2024-01-02, on schedule; newest published slice 2024-01-02, on schedule"
    )
    assert shown("2024-01-04T06:00") == behind.format("1 day")
    assert shown("2024-01-14T06:00") == behind.format("11 days")
    place.run("2024-01-03", "2024-01-13")
    assert freshness(place.work, place.work.ledger.view()).text == (
        "newest record 2024-01-02, 11 days behind the schedule; newest published slice 2024-01-12, 1 day behind the "
        "schedule"
    ), "slices without records are published"
    assert last_tick_ms(sales(PIPELINE.replace('schedule: "0 6 * * *"', "")), 5) == 5


@pytest.mark.parametrize("stored", [None, "x", 7, [], {}])
def test_a_state_that_is_not_known_tells_everything(stored: object) -> None:
    assert Told.read(stored) == Told(times={}, causes=frozenset())
