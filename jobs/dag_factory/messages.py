"""Sends alerts through connections and notifiers of Airflow. A problem is one line in the log, without the address."""

import html
import logging
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from airflow.sdk import BaseHook, Connection, Context
from airflow.sdk.bases.notifier import BaseNotifier
from airflow.sdk.exceptions import AirflowNotFoundException

from jobs.orchestration.alerts import Alert
from jobs.pipeline.models.alerts import AlertsGrammar, Recipient
from jobs.plain_text import escaped
from windowlib.errors import HindcastError

log = logging.getLogger(__name__)

TIMEOUT_S = 10.0
_SCHEMES = ("http", "https")


class NotSent(HindcastError):  # noqa: N818
    """A message cannot be sent. The text has no address, because the address of a webhook is a secret."""


def send(alert: Alert, alerts: AlertsGrammar, context: Context) -> int:
    """Send a message to each recipient, and return how many got it. It raises nothing: the others still get theirs."""
    sent = 0
    for recipient in alerts.to:
        to = recipient.connection or recipient.notifier
        try:
            _send(alert, recipient, context)
        except NotSent as error:
            log.error("the message %r was not sent to %s: %s", alert.subject, to, escaped(error))  # noqa: TRY400
        except Exception as error:  # noqa: BLE001 - the text of a library's error may have the address or a password
            log.error("the message %r was not sent to %s: %s", alert.subject, to, _kind(error))  # noqa: TRY400
        else:
            sent += 1
            log.info("the message %r was sent to %s", alert.subject, to)
    return sent


def _send(alert: Alert, recipient: Recipient, context: Context) -> None:
    if recipient.notifier is not None:
        _load(recipient.notifier)(**_filled(recipient.arguments, alert)).notify(context)
        return
    connection = _connection(recipient.connection or "")
    match connection.conn_type:
        case "smtp" | "email":
            _mail(alert, recipient, context)
        case "http" | "https":
            _post(alert, connection)
        case "slackwebhook":
            slack = _load("airflow.providers.slack.notifications.slack_webhook.SlackWebhookNotifier")
            # Slack then reads no link and no mention, such as `<!channel>`, in values of the log.
            text = html.escape(f"{alert.subject}\n{alert.text}", quote=False)
            slack(slack_webhook_conn_id=recipient.connection, text=text).notify(context)
        case kind:
            raise NotSent(
                f"the connection has the type {kind!r}; allowed are smtp, http, https and slackwebhook. For other "
                "systems, name a notifier of an Airflow provider"
            )


def _connection(name: str) -> Connection:
    try:
        return BaseHook.get_connection(name)
    except AirflowNotFoundException:
        raise NotSent("Airflow has no such connection") from None


def _mail(alert: Alert, recipient: Recipient, context: Context) -> None:
    from airflow.providers.smtp.notifications.smtp import SmtpNotifier

    if recipient.email is None:
        raise NotSent("the connection has the type smtp, and the pipeline file gives no `email` addresses")
    *lines, url = alert.text.split("\n")
    link = f'<a href="{html.escape(url, quote=True)}">{html.escape(url)}</a>'
    body = "<br>\n".join([html.escape(line).replace("  ", "&nbsp;&nbsp;") for line in lines] + [link])
    mail = SmtpNotifier(
        to=list(recipient.email), subject=alert.subject, html_content=body, smtp_conn_id=recipient.connection
    )
    mail.notify(context)


def _post(alert: Alert, connection: Connection) -> None:
    import httpx

    headers = {str(name): str(value) for name, value in connection.extra_dejson.items()}
    login = (connection.login, connection.password or "") if connection.login else None
    answer = httpx.post(_url(connection), json=alert.to_json(), headers=headers, auth=login, timeout=TIMEOUT_S)
    if answer.is_success:
        return
    redirect = "; give the connection the address to which the server redirects" if answer.is_redirect else ""
    raise NotSent(f"the server answered with status {answer.status_code}{redirect}")


def _url(connection: Connection) -> str:
    """Return the address of a webhook. As in Airflow's HTTP hook, the host may be a whole URL, also with a `port`.

    A connection that is given as a URI has its path in `schema`.
    """
    import httpx

    host, schema = connection.host or "", connection.schema or ""
    if "://" in host:
        url = httpx.URL(host)
        return str(url.copy_with(port=connection.port) if connection.port and url.port is None else url)
    scheme = schema if schema in _SCHEMES else connection.conn_type
    path = "" if schema in _SCHEMES else schema
    port = f":{connection.port}" if connection.port else ""
    return f"{scheme}://{host}{port}/{path}"


def _load(name: str) -> Callable[..., BaseNotifier]:
    module, _, attribute = name.rpartition(".")
    try:
        notifier = getattr(import_module(module), attribute)
    except (ImportError, AttributeError):
        raise NotSent("there is no such class; is the Airflow provider installed?") from None
    if not (isinstance(notifier, type) and issubclass(notifier, BaseNotifier)):
        raise NotSent("it is not a notifier of Airflow (a subclass of BaseNotifier), so it is not called")
    return notifier


def _filled(arguments: Mapping[str, Any], alert: Alert) -> dict[str, Any]:
    """Put the message into the texts of a notifier's arguments."""
    values = {"{subject}": alert.subject, "{text}": alert.text, "{url}": alert.url}

    def fill(value: object) -> object:
        match value:
            case str():
                for name, text in values.items():
                    value = value.replace(name, text)
                return value
            case Mapping():
                return {key: fill(item) for key, item in value.items()}
            case list() | tuple():
                return [fill(item) for item in value]
            case _:
                return value

    return {key: fill(value) for key, value in arguments.items()}


def _kind(error: Exception) -> str:
    code = getattr(error, "errno", None) or getattr(error, "smtp_code", None)
    return type(error).__name__ + (f" {code}" if code else "")
