"""The `alerts` part of a pipeline file: which events send a message, and through which connections of Airflow."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, Strict, StringConstraints, model_validator

from jobs.durations import PositiveDuration
from jobs.pipeline.models.grammar import GrammarModel, PlainName, refuse_control_characters

MAX_RECIPIENTS = 8
HALF_HOURLY = "*/30 * * * *"

_CLASS = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", re.ASCII)
_ADDRESS = re.compile(r"[^@\s]+@[^@\s]+")
_TIME = re.compile(r"([01]\d|2[0-3]):[0-5]\d", re.ASCII)


def _check_address(value: str) -> str:
    if not _ADDRESS.fullmatch(value):
        raise ValueError(f"expected an e-mail address such as on-call@example.com, found {value!r}")
    return refuse_control_characters(value)


def _check_class(value: str) -> str:
    if not _CLASS.fullmatch(value):
        raise ValueError(f"expected the full name of a class, such as package.module.Notifier, found {value!r}")
    return value


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str | Mapping) else value


Connection = Annotated[str, StringConstraints(pattern=r"^[\w.-]+$", max_length=200)]  # a counted `\w` compiles in 20 ms
Address = Annotated[str, StringConstraints(max_length=254), AfterValidator(_check_address)]
Addresses = Annotated[
    tuple[Address, ...], BeforeValidator(_as_list), Strict(strict=False), Field(min_length=1, max_length=50)
]


class Recipient(PlainName):
    """Who gets a message: a connection of Airflow by its id, or a notifier of an Airflow provider.

    `email` are the addresses for a connection of type smtp. `notifier` is a class such as
    `airflow.providers.slack.notifications.slack.SlackNotifier`. Its texts in `arguments` may have {subject}, {text} and
    {url}.
    """

    connection: Connection | None = None
    email: Addresses | None = None
    notifier: Annotated[str, StringConstraints(max_length=300), AfterValidator(_check_class)] | None = None
    arguments: Mapping[str, Any] = {}

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.connection is None) == (self.notifier is None):
            raise ValueError("needs connection, the id of an Airflow connection, or notifier, a class; not both")
        if self.notifier is not None and self.email is not None:
            raise ValueError("email is for a connection of type smtp; a notifier gets its addresses in arguments")
        if self.connection is not None and self.arguments:
            raise ValueError("arguments are for a notifier; leave them out")
        return self


Recipients = Annotated[
    tuple[Recipient, ...],
    BeforeValidator(_as_list),
    Strict(strict=False),
    Field(min_length=1, max_length=MAX_RECIPIENTS),
]


def _check_time(value: str) -> str:
    if not _TIME.fullmatch(value):
        raise ValueError(f'expected a time of day in UTC such as "08:00", found {value!r}')
    return value


TimeOfDay = Annotated[str, AfterValidator(_check_time)]


class AlertsGrammar(GrammarModel):
    """The events that send a message, and who gets it.

    Attributes:
        to: the recipients.
        failed: a task of the pipeline's DAGs has failed after its last retry.
        held: a check has failed, so slices wait for a person.
        held_longer_than_ms: slices have waited longer than this for a person.
        data_not_there_by: a time of day in UTC. By that time, the log should have every slice of the days before.
        not_published_by: a time of day in UTC. At that time, readers should see every slice of the days before.
        digest_at: a time of day in UTC. At that time, a message tells what has happened since the day before.
    """

    to: Recipients
    failed: bool = True
    held: bool = True
    held_longer_than_ms: PositiveDuration | None = Field(default=None, alias="held_longer_than")
    data_not_there_by: TimeOfDay | None = None
    not_published_by: TimeOfDay | None = None
    digest_at: TimeOfDay | None = None

    @model_validator(mode="after")
    def _has_event(self) -> Self:
        if not (self.failed or self.held or self.crons):
            raise ValueError("no event sends a message; set failed, held or not_published_by, or leave out alerts")
        return self

    @property
    def times(self) -> dict[str, str]:
        """The times of day, in UTC, by the key of the pipeline file."""
        times = {key: getattr(self, key) for key in ("data_not_there_by", "not_published_by", "digest_at")}
        return {key: time for key, time in times.items() if time is not None}

    @property
    def crons(self) -> tuple[str, ...]:
        """The cron expressions, in UTC, at which the deadlines are looked at; empty if the file names none."""
        crons = [f"{int(time[3:])} {int(time[:2])} * * *" for time in sorted({*self.times.values()})]
        return (*crons, *((HALF_HOURLY,) if self.held_longer_than_ms is not None else ()))
