"""Alerts: sent through connections of Airflow to a local SMTP server and a local webhook. They never fail a task."""

import json
import logging
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from jobs.lake.lake import Lake
from jobs.orchestration import dag_orders, dag_tasks, maintenance, scheduling
from jobs.orchestration.alerts import Alert, Event
from jobs.orchestration.requests import run_request
from jobs.planning.request_context import Asked, open_request_context
from jobs.reading.verify import Span
from jobs.wall_clock import now_ms
from tests.support.fake_replay import FAILS, PIPELINE, FakeReplayer, append_day, day_ms, sales
from tests.support.message_sinks import HOST, MailSink, WebhookSink, mail_sink, webhook_sink
from tests.support.simulated_airflow import StateStore
from windowlib.errors import LedgerError

if TYPE_CHECKING:
    from airflow.sdk import DAG

    from tests.jobs.dag_factory.conftest import LoadDags

pytestmark = pytest.mark.dags

SECRET = "T0K3N-of-the-webhook"  # noqa: S105 - it must not be in a log
SLACK = "airflow.providers.slack.notifications.slack_webhook"
ALERTS = """
alerts:
  to:
    - {connection: mail, email: [on-call@example.com]}
    - hook
  not_published_by: "08:00"
"""
ALERT = Alert(
    event=Event.HELD, pipeline="sales", subject="sales: 1 slice held", lines=("Pipeline: sales",), url="http://x/y"
)


@pytest.fixture
def mails() -> Iterator[MailSink]:
    with mail_sink() as sink:
        yield sink


@pytest.fixture
def hooks() -> Iterator[WebhookSink]:
    with webhook_sink() as sink:
        yield sink


@pytest.fixture
def connections(mails: MailSink, hooks: WebhookSink, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"disable_ssl": True, "disable_tls": True, "from_email": "airflow@example.com", "retry_limit": 1}
    mail = {"conn_type": "smtp", "host": HOST, "port": mails.port, "extra": options}
    hook = {"conn_type": "http", "host": f"http://{HOST}:{hooks.port}/services/{SECRET}", "extra": {"X-Team": "events"}}
    monkeypatch.setenv("AIRFLOW_CONN_MAIL", json.dumps(mail))
    monkeypatch.setenv("AIRFLOW_CONN_HOOK", json.dumps(hook))


class Lines(logging.Handler):
    """Keeps the lines of a logger. Airflow replaces the handlers of the root logger, so caplog may get none."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text += f"{record.getMessage()}\n"


@pytest.fixture
def logged() -> Iterator[Lines]:
    lines, logger = Lines(), logging.getLogger("jobs.dag_factory")
    logger.addHandler(lines)
    yield lines
    logger.removeHandler(lines)


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    lake = Lake(root=str(tmp_path / "lake"))
    monkeypatch.setenv("HINDCAST_LAKE", lake.root)
    monkeypatch.setattr(dag_tasks, "now_ms", lambda: day_ms("2024-01-03") + 12 * 3_600_000)
    append_day(Path(lake.root), "2024-01-01", {"a": 1})
    append_day(Path(lake.root), "2024-01-02", {"b": FAILS})
    return lake


@pytest.fixture
def dags(load_dags: "LoadDags", tmp_path: Path, lake: Lake, connections: None) -> "dict[str, DAG]":  # noqa: ARG001
    directory = tmp_path / "pipelines"
    directory.mkdir()
    (directory / "sales.yaml").write_text(PIPELINE + ALERTS, encoding="utf-8")
    return dict(load_dags(directory))


def failed(dag: "DAG", task: str, error: Exception, order: object = None) -> Any:  # noqa: ANN401
    """Call the failure callbacks of a task as Airflow does after its last retry."""
    run = SimpleNamespace(dag_id=dag.dag_id, run_id="manual__1")
    ti = SimpleNamespace(task_id=task, xcom_pull=lambda task_ids: order)  # noqa: ARG005
    operator: Any = dag.get_task(task)
    for callback in operator.on_failure_callback:
        callback({"dag": dag, "dag_run": run, "ti": ti, "exception": error})


def staged(lake: Lake) -> dag_orders.Order:
    run = dag_tasks.DagRun(dag_id="replay_sales", run_id="r", run_type="manual")
    order = dag_tasks.plan("replay", str(Path(lake.root).parent / "pipelines" / "sales.yaml"), run)
    assert isinstance(order, dag_orders.Order)
    scheduling.replay(
        open_request_context(sales(), lake, now_ms=now_ms),
        opened=order.opened,
        slices=order.slices[:2],
        replayer=FakeReplayer(),
    )
    return order


def test_held_slices_are_told_with_slice_check_and_what_to_do(
    dags: "dict[str, DAG]", lake: Lake, mails: MailSink, hooks: WebhookSink, logged: Lines
) -> None:
    from jobs.dag_factory.operators import SlicesHeld

    order = staged(lake)
    gate = dag_tasks.gate(order)
    assert not gate.is_passed
    failed(dags["replay_sales"], "gate", SlicesHeld(gate), order.to_json())
    [mail], [hook] = mails.messages, hooks.bodies
    assert (mail["subject"], mail["to"]) == ("sales: 1 slice held", "on-call@example.com")
    for text in (mails.texts[0].replace("&nbsp;", " "), hook["text"]):
        for wanted in (
            "Pipeline: sales",
            "Slices: 2024-01-02",
            "2024-01-02: window_outputs: total: failed",
            "What to do: ",
            "dag-run",
        ):
            assert wanted in text
    assert (hook["event"], hook["slices"]) == ("held", {"first": "2024-01-02", "last": "2024-01-02", "count": 1})
    assert hooks.headers[0]["x-team"] == "events"
    assert hooks.paths == [f"/services/{SECRET}"]
    assert SECRET not in logged.text


def test_a_failed_task_is_told_once_and_its_error_is_escaped(dags: "dict[str, DAG]", hooks: WebhookSink) -> None:
    failed(dags["backfill_sales"], "replay", RuntimeError("out of\x1b[31m memory <b>"))
    [hook] = hooks.bodies
    assert hook["event"] == "failed"
    assert "Task replay of backfill_sales, run manual__1 failed:" in hook["text"]
    assert "out of\\x1b[31m memory <b>" in hook["text"]
    assert all(not task.on_retry_callback for task in dags["backfill_sales"].tasks)


def test_a_wrong_form_is_told_to_nobody_else(dags: "dict[str, DAG]", mails: MailSink, hooks: WebhookSink) -> None:
    from jobs.dag_factory.task_errors import FormRefused

    failed(dags["backfill_sales"], "plan", FormRefused("Reason is empty"))
    assert (mails.messages, hooks.bodies) == ([], [])


def test_events_that_are_switched_off_send_nothing(
    load_dags: "LoadDags", tmp_path: Path, connections: None, hooks: WebhookSink
) -> None:
    assert connections is None
    (tmp_path / "sales.yaml").write_text(f"{PIPELINE}\nalerts: {{to: hook, failed: false}}\n", encoding="utf-8")
    dags = load_dags(tmp_path)
    assert "alert_sales" not in dags
    failed(dags["replay_sales"], "replay", RuntimeError("no"))
    assert hooks.bodies == []


@pytest.mark.parametrize(
    ("recipient", "connection", "why"),
    [
        ("nobody", None, "Airflow has no such connection"),
        ("odd", {"conn_type": "ftp", "host": "x"}, "the connection has the type 'ftp'; allowed are smtp, http"),
        ("mail", None, "gives no `email` addresses"),
        ("gone", {"conn_type": "http", "host": f"http://{HOST}:1/{SECRET}"}, "ConnectError"),
        ("{notifier: no.such.Class}", None, "there is no such class"),
        ("{notifier: subprocess.Popen, arguments: {args: ['false']}}", None, "it is not a notifier of Airflow"),
        ("{notifier: airflow.sdk.BaseOperator, arguments: {task_id: a}}", None, "it is not a notifier of Airflow"),
    ],
)
def test_a_message_that_cannot_be_sent_is_a_line_without_the_address_and_the_others_get_theirs(
    connections: None, hooks: WebhookSink, monkeypatch: pytest.MonkeyPatch, logged: Lines,
    recipient: str, connection: dict[str, Any] | None, why: str,
) -> None:  # fmt: skip
    from jobs.dag_factory.messages import send

    assert connections is None
    if connection is not None:
        monkeypatch.setenv(f"AIRFLOW_CONN_{recipient.upper()}", json.dumps(connection))
    alerts = sales(f"{PIPELINE}\nalerts: {{to: [{recipient}, hook]}}\n").alerts
    assert alerts is not None
    assert send(ALERT, alerts, {}) == 1
    assert hooks.bodies[0]["subject"] == ALERT.subject
    assert why in logged.text
    assert SECRET not in logged.text


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308, 404, 503])
def test_a_webhook_that_takes_no_message_is_told_by_its_status(
    connections: None, hooks: WebhookSink, logged: Lines, status: int
) -> None:
    from jobs.dag_factory.messages import send

    assert connections is None
    hooks.status = status
    alerts = sales(f"{PIPELINE}\nalerts: {{to: hook}}\n").alerts
    assert alerts is not None
    assert send(ALERT, alerts, {}) == 0
    assert f"the server answered with status {status}" in logged.text
    assert ("the address to which the server redirects" in logged.text) == (300 < status < 400)


@pytest.mark.parametrize(
    ("connection", "url"),
    [
        ({"host": "https://hooks.example/a/b?c=d", "port": 8443}, "https://hooks.example:8443/a/b?c=d"),
        ({"host": "https://hooks.example:1/a", "port": 2}, "https://hooks.example:1/a"),
        ({"host": "https://hooks.example/a"}, "https://hooks.example/a"),
        ({"host": "hooks.example", "port": 2, "schema": "https"}, "https://hooks.example:2/"),
        ({"host": "hooks.example", "schema": "a/b"}, "http://hooks.example/a/b"),
    ],
)
def test_the_address_of_a_webhook_has_the_port_of_its_connection(connection: dict[str, Any], url: str) -> None:
    from airflow.sdk import Connection

    from jobs.dag_factory.messages import _url

    assert _url(Connection(conn_id="hook", conn_type="http", **connection)) == url


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The arguments that the notifier of Slack gets, which is a notifier of this test."""
    from airflow.sdk import BaseNotifier

    made: list[dict[str, Any]] = []

    class RecordingNotifier(BaseNotifier):
        def __init__(self, **arguments: Any) -> None:  # noqa: ANN401
            super().__init__()
            self.arguments = arguments

        def notify(self, context: object) -> None:
            del context
            made.append(self.arguments)

    module = ModuleType("slack_webhook")
    monkeypatch.setattr(module, "SlackWebhookNotifier", RecordingNotifier, raising=False)
    monkeypatch.setitem(sys.modules, SLACK, module)
    return made


def test_any_notifier_gets_the_message_in_its_arguments(made: list[dict[str, Any]]) -> None:
    from jobs.dag_factory.messages import send

    name = f"{SLACK}.SlackWebhookNotifier"
    arguments = "{summary: '{subject}!', details: {links: ['{url}'], tries: 3}}"
    alerts = sales(f"{PIPELINE}\nalerts: {{to: {{notifier: {name}, arguments: {arguments}}}}}\n").alerts
    assert alerts is not None
    assert send(ALERT, alerts, {}) == 1
    assert made == [{"summary": "sales: 1 slice held!", "details": {"links": ["http://x/y"], "tries": 3}}]


def test_slack_reads_no_link_and_no_mention_in_a_value_of_the_log(
    connections: None, monkeypatch: pytest.MonkeyPatch, made: list[dict[str, Any]]
) -> None:
    from jobs.dag_factory.messages import send

    assert connections is None
    monkeypatch.setenv("AIRFLOW_CONN_CHAT", json.dumps({"conn_type": "slackwebhook", "password": SECRET}))
    alerts = sales(f"{PIPELINE}\nalerts: {{to: chat}}\n").alerts
    assert alerts is not None
    assert send(replace(ALERT, lines=("among them <!channel>, <http://x|a & b>",)), alerts, {}) == 1
    [arguments] = made
    assert arguments["text"].splitlines()[1] == "among them &lt;!channel&gt;, &lt;http://x|a &amp; b&gt;"


def test_the_dag_of_the_alert_runs_at_its_times_and_tells_what_readers_do_not_see_once(
    dags: "dict[str, DAG]", hooks: WebhookSink
) -> None:
    dag: Any = dags["alert_sales"]
    assert [one.expression for one in dag.timetable.timetables] == ["0 8 * * *"]
    assert dag.is_paused_upon_creation is False
    check, store = dag.get_task("check_deadlines"), StateStore()
    assert check.retries * check.retry_delay == timedelta(hours=2), "the next run is a day later"
    [sent] = check.execute({"asset_state_store": store})
    assert "not visible to readers" in sent
    [hook] = hooks.bodies
    assert hook["event"] == "not published"
    assert "2024-01-01 … 2024-01-02 (2 slices): complete, but no request has replayed it" in hook["text"]
    assert check.execute({"asset_state_store": store}) == []
    by_hand = SimpleNamespace(run_type=SimpleNamespace(value="manual"))
    assert check.execute({"asset_state_store": store, "dag_run": by_hand}) == [sent]


@pytest.mark.parametrize("broken", ["pipeline: sales\nlgo: 1\n", "", PIPELINE.replace("sales", "other"), PIPELINE[:90]])
def test_while_the_file_is_broken_its_error_and_the_missing_days_are_told_with_the_published_settings(
    load_dags: "LoadDags", tmp_path: Path, lake: Lake, dags: "dict[str, DAG]", hooks: WebhookSink, broken: str
) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    file = tmp_path / "pipelines" / "sales.yaml"
    work = open_request_context(sales(PIPELINE + ALERTS), lake, now_ms=now_ms)
    file.write_text(broken, encoding="utf-8")
    before: Any = dags["alert_sales"]
    dag: Any = load_dags(file.parent)["alert_sales"]
    assert [one.expression for one in dag.timetable.timetables] == ["*/30 * * * *"]
    with pytest.raises(AirflowFailException, match=r"sales\.yaml"):
        dag.get_task("check_deadlines").execute({"asset_state_store": StateStore()})
    run_request(
        work, Asked(from_ms=day_ms("2024-01-01"), to_ms=day_ms("2024-01-02"), who="me", reason="x"), FakeReplayer()
    )
    store = StateStore()
    told = ["sales: the pipeline file is broken", "sales: 2024-01-02 not visible to readers"]
    for task, subjects in ((before, told), (dag, [])):
        assert task.get_task("check_deadlines").execute({"asset_state_store": store}) == subjects
    assert [hook["subject"] for hook in hooks.bodies] == told
    assert str(file) in hooks.bodies[0]["text"]
    for dag_id, task in (("replay_sales", "gate"), ("alert_sales", "check_deadlines")):
        failed(load_dags(file.parent)[dag_id], task, ValueError("sales.yaml: broken"))
        assert hooks.bodies[-1]["subject"] == f"sales: task {task} failed"
    assert len(hooks.bodies) == len(told) + 2


def test_messages_that_cannot_be_made_are_told_as_a_failed_task(
    dags: "dict[str, DAG]", lake: Lake, hooks: WebhookSink
) -> None:
    """Defect: with a ledger that could not be read, the DAG of the messages failed, and nobody was told."""
    check: Any = dags["alert_sales"].get_task("check_deadlines")
    ledger = Path(lake.ledger("sales"))
    (ledger / "_delta_log").mkdir(parents=True)
    (ledger / "_delta_log" / f"{0:020}.json").write_text("{", encoding="utf-8")
    with pytest.raises(LedgerError) as unreadable:
        check.execute({"asset_state_store": StateStore()})
    failed(dags["alert_sales"], "check_deadlines", unreadable.value)
    [hook] = hooks.bodies
    assert hook["subject"] == "sales: task check_deadlines failed"


def test_what_was_told_is_not_known_so_the_message_is_sent_again(dags: "dict[str, DAG]", logged: Lines) -> None:
    check: Any = dags["alert_sales"].get_task("check_deadlines")
    context = {"asset_state_store": SimpleNamespace(set=lambda _key, _value: None)}
    assert len(check.execute(context)) == len(check.execute(context)) == 1
    assert "messages may be repeated" in logged.text


def test_a_retry_sends_only_the_messages_that_nobody_got(
    load_dags: "LoadDags", tmp_path: Path, lake: Lake, connections: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lake.is_local
    assert connections is None
    monkeypatch.setattr(dag_tasks, "now_ms", lambda: day_ms("2024-01-04") + 12 * 3_600_000)
    times = "data_not_there_by: '06:00', not_published_by: '07:00', digest_at: '08:00'"
    (tmp_path / "sales.yaml").write_text(f"{PIPELINE}\nalerts: {{to: hook, {times}}}\n", encoding="utf-8")
    check: Any = load_dags(tmp_path)["alert_sales"].get_task("check_deadlines")
    events = [Event.NOT_THERE, Event.NOT_PUBLISHED, Event.DIGEST]
    for failing in events:
        store, sent = StateStore(), list[Event]()

        def send(alert: Alert, *_more: object, no: Event | None, sent: list[Event] = sent) -> int:
            sent.extend([alert.event] if alert.event is not no else [])
            return int(alert.event is not no)

        monkeypatch.setattr("jobs.dag_factory.messages.send", partial(send, no=failing))
        with pytest.raises(ConnectionError, match="was sent to nobody"):
            check.execute({"asset_state_store": store})
        assert sent == [event for event in events if event is not failing]
        monkeypatch.setattr("jobs.dag_factory.messages.send", partial(send, no=None))
        assert len(check.execute({"asset_state_store": store})) == 1
        assert sent[-1] is failing
        assert check.execute({"asset_state_store": store}) == []


def test_the_maintenance_tells_damage_and_how_to_mend_it_and_cleans_up_what_is_whole(
    load_dags: "LoadDags", tmp_path: Path, lake: Lake, connections: None, hooks: WebhookSink,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    from jobs.dag_factory.task_errors import RowsDamaged

    assert connections is None
    monkeypatch.setattr(maintenance, "SHARES", 1)
    (tmp_path / "sales.yaml").write_text(PIPELINE + ALERTS + "retention: {superseded: 90d}\n", encoding="utf-8")
    dag: Any = load_dags(tmp_path)["maintain_sales"]
    assert dag.is_paused_upon_creation is False
    assert dag.timetable.expression == "0 4 * * *"
    asked = Asked(from_ms=day_ms("2024-01-01"), to_ms=day_ms("2024-01-02"), who="me", reason="test")
    run_request(open_request_context(sales(), lake, now_ms=now_ms), asked, FakeReplayer())
    run = SimpleNamespace(dag_id="maintain_sales", run_id="scheduled__1")
    scrub, clean = (dag.get_task(name) for name in ("scrub", "clean"))
    assert clean.upstream_task_ids == {"scrub"}
    assert scrub.execute({"dag_run": run}).endswith("as it was written, and 1 file of the log could not")
    removed = clean.execute({"dag_run": run})
    assert (removed["rows"], removed["files"], removed["removed"]) == ([], 0, True)
    [path] = Path(lake.root).glob("sales/window_outputs/slice_id=2024-01-01/*/*.parquet")
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(RowsDamaged, match="hindcast mend sales 2024-01-01") as caught:
        scrub.execute({"dag_run": run, "ti": SimpleNamespace(xcom_push=lambda **_kept: None)})
    failed(dag, "scrub", caught.value)
    [hook] = hooks.bodies
    assert (hook["event"], hook["slices"]["first"]) == ("damaged", "2024-01-01")
    assert "What to do: Make the rows again: `hindcast mend sales 2024-01-01`." in hook["text"]


@pytest.mark.parametrize("every", [1, 7, 31])
def test_each_slice_is_read_again_once_in_thirty_days_whatever_the_schedule(
    load_dags: "LoadDags", tmp_path: Path, lake: Lake, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    """With a weekly schedule, a slice once was read every 210 days. A run after a failed one makes up for it."""
    assert lake.is_local
    (tmp_path / "sales.yaml").write_text(f"{PIPELINE}retention: {{superseded: 90d}}\n", encoding="utf-8")
    scrub: Any = load_dags(tmp_path)["maintain_sales"].get_task("scrub")
    report = SimpleNamespace(findings=(), rows=0, runs=0, verdict="everything is as it was written")
    read: list[int] = []

    def verify_all(_work: object, span: Span) -> Any:  # noqa: ANN401
        read.extend(span.chosen)
        return SimpleNamespace(report=report)

    monkeypatch.setattr(maintenance, "verify_all", verify_all)
    before: datetime | None = None
    for day in range(0, 210 * every, every):
        now = datetime(2024, 1, 1, 4, tzinfo=UTC) + timedelta(days=day)
        monkeypatch.setattr(maintenance, "now_ms", lambda now=now: int(now.timestamp() * 1000))
        scrub.execute({"prev_start_date_success": before})
        before = before if day == 14 * every else now
    counts = {share: read.count(share) for share in range(maintenance.SHARES)}
    assert all(abs(count - 7 * min(every, 30)) <= 1 for count in counts.values()), counts
