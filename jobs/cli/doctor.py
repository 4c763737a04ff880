"""`hindcast doctor`: tell whether an event log is fit for replay, and what mends it."""

import functools
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

import click
from rich.text import Text

from jobs.cli import options
from jobs.doctor.column_roles import Roles, Wishes
from jobs.doctor.examination import SAMPLE, Examination, Request, examine
from jobs.doctor.finding import Finding, Severity
from jobs.doctor.proposal import share_text
from jobs.durations import format_duration
from jobs.lake.lake import Lake, checked_place
from jobs.plain_text import counted, escaped
from jobs.storage import is_remote
from jobs.wall_clock import now_ms
from windowlib.errors import RequestError

_STYLES: Final[Mapping[Severity, str | None]] = {
    Severity.OK: None,
    Severity.NOTE: "cyan",
    Severity.WARNING: "yellow",
    Severity.ERROR: "bold red",
}
_INDENT: Final = 9
_WIDEST: Final = 100
_BAR: Final = 30
_DEFAULT_WINDOW: Final = "1h"

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def column_options(command: Callable[_Parameters, _Result]) -> Callable[..., _Result]:
    """Add the options that name columns. The command gets `wishes`."""

    @click.option(
        "--key",
        "keys",
        multiple=True,
        metavar="COLUMN",
        help="A key column; several times for several; or `all`: no key.",
    )
    @click.option("--event-time", metavar="COLUMN[:UNIT]", help="The event time; a number needs :s, :ms, :us or :ns.")
    @click.option("--arrival-time", metavar="COLUMN[:UNIT]", help="When a record arrived.")
    @click.option("--record-id", metavar="COLUMN", help="The column with the id of a record.")
    @click.option(
        "--slice-by",
        multiple=True,
        metavar="COLUMN",
        help="The column of log.slice; several times for a date in parts.",
    )
    @click.option(
        "--order", multiple=True, metavar="COLUMN", help="A column of log.order, in order; or `commits` or `appended`."
    )
    @click.option("--window", default=_DEFAULT_WINDOW, show_default=True, help="The size of tumbling windows.")
    @functools.wraps(command)
    def with_wishes(
        *args: Any, keys: tuple[str, ...], event_time: str | None, arrival_time: str | None,  # noqa: ANN401
        record_id: str | None, slice_by: tuple[str, ...], order: tuple[str, ...], window: str,
        **kwargs: Any,  # noqa: ANN401
    ) -> _Result:  # fmt: skip
        wishes = Wishes(
            key=keys,
            event_time=event_time,
            arrival_time=arrival_time,
            record_id=record_id,
            slice_by=slice_by,
            order=order,
            window_ms=options.duration_ms(window, "--window"),
        )
        return command(*args, wishes=wishes, **kwargs)  # type: ignore[arg-type]

    return with_wishes


sample_option = click.option(
    "--sample",
    type=click.IntRange(min=1),
    default=SAMPLE,
    show_default=True,
    help="Read at most so many records, the newest ones.",
)


@click.command(
    "doctor",
    short_help="Tell whether an event log is fit for replay, and what mends it.",
    epilog="Example: hindcast doctor event_logs/flights --sample 100000",
)
@click.argument("table")
@column_options
@sample_option
@click.option("--horizon", default="30d", show_default=True, help="How far back changes of the log should be seen.")
@options.json_option
@options.place_options
def doctor_command(
    *, table: str, wishes: Wishes, sample: int, horizon: str, as_json: bool, places: options.Places
) -> int:
    """Examine an event log: TABLE is a path or URI, or a path below the lake. Nothing is written.

    TABLE may be a Delta table, a directory of Parquet files, or an Iceberg table (its directory, or a metadata file).

    The metadata is read first, then at most --sample records. Columns that no option names are guessed. The histogram
    tells which share of the records would be late for a bound of the watermark, in tumbling windows of --window.

    The exit status is 1 if there is an error: no pipeline file can be written with which the table can be replayed.
    """
    request = request_of(table, places, wishes=wishes, sample=sample)
    examination = examine(replace(request, horizon_ms=options.duration_ms(horizon, "--horizon")), now_ms=now_ms())
    if as_json:
        options.print_json(examination_json(examination))
    else:
        show_examination(examination, window_ms=wishes.window_ms)
        is_fit = examination.fit is not None
        when = "its first pipeline file" if is_fit else "a pipeline file when the errors are mended"
        options.say(f"{_tally(examination.findings)}; `hindcast init` writes {when}.")
    return options.REFUSED if examination.fit is None else options.OK


def request_of(table: str, places: options.Places, *, wishes: Wishes, sample: int, name: str | None = None) -> Request:
    """Return what to examine. A relative path is one below the working directory if it exists there, else the lake.

    Raises:
        SpecError: the Delta library would misread the path.
        RequestError: the text is empty.
    """
    if not table.strip():
        raise RequestError("TABLE is empty; write the path or URI of an event log")
    uri = checked_place(_place(table, places.lake), "TABLE")
    return Request(
        table=_in_the_file(uri, places.lake),
        uri=uri,
        lake=places.lake,
        pipelines=places.pipelines,
        wishes=wishes,
        sample=sample,
        name=name,
    )


def _place(table: str, lake: Lake) -> str:
    if is_remote(table) or table.startswith("file:") or "\0" in table:
        return table
    try:
        is_here = Path(table).is_absolute() or Path(table).exists()
    except OSError:  # a name that is too long
        is_here = True
    if is_here:
        return str(Path(table).absolute())
    return str(Path(lake.root) / table) if lake.is_local else f"{lake.root.rstrip('/')}/{table}"


def _in_the_file(uri: str, lake: Lake) -> str:
    """Return `log.table` for a place: relative to the lake if it is below it."""
    if is_remote(uri) or not lake.is_local:
        root = lake.root.rstrip("/") + "/"
        return uri.removeprefix(root)
    base, place = Path(lake.root).resolve(), Path(uri).resolve()
    return str(place.relative_to(base)) if place.is_relative_to(base) and place != base else str(place)


def show_examination(examination: Examination, *, window_ms: int) -> None:
    """Print findings, and the histogram of the delays."""
    options.say(f"{examination.facts.uri}, {examination.facts.named}", style="bold")
    options.say(*_wrapped(f"columns: {_roles_text(examination.roles)}"))
    for finding in examination.findings:
        _show_finding(finding)
    if examination.measures is None or not examination.measures.records:
        return
    of = "" if examination.facts.records is None else f" of {examination.facts.records:,}"
    options.print_table(
        f"Share of {examination.sampled:,}{of} records by bound + allowed lateness, "
        f"windows of {format_duration(window_ms)}",
        ("bound", "behind", "late", ""),
        [
            (format_duration(rung.bound_ms), share_text(rung.behind), share_text(rung.late), _bar(rung.late))
            for rung in examination.measures.delays.histogram()
        ],
        right=("bound", "behind", "late"),
    )


def _bar(share: float) -> Text:
    return Text("█" * max(round(share * _BAR), 1) if share else "", style="yellow")


def _wrapped(text: str) -> list[str]:
    width = max(min(options.out().width, _WIDEST) - _INDENT, 2 * _INDENT)
    return textwrap.wrap(escaped(text), width, break_on_hyphens=False, break_long_words=False)


def _roles_text(roles: Roles) -> str:
    times = {"event time": roles.event_time, "arrival": roles.arrival_time}
    shown = {name: f"{role.column}{f' ({role.unit})' if role.unit else ''}" for name, role in times.items() if role}
    named = {"key": ", ".join(roles.key) or "all records", **shown, "record id": roles.record_id}
    return "; ".join(f"{name} {value}" for name, value in named.items() if value)


def _show_finding(finding: Finding) -> None:
    first, *others = _wrapped(f"{finding.subject}: {finding.text}")
    options.say(f"{finding.severity.value:<{_INDENT}}{first}", style=_STYLES[finding.severity])
    for line in others:
        options.say(" " * _INDENT + line)
    if finding.mend:
        options.say(f"{' ' * _INDENT}→ {finding.mend}")


def _tally(findings: tuple[Finding, ...]) -> str:
    severities = [finding.severity for finding in findings]
    counts = {kind: severities.count(kind) for kind in (Severity.ERROR, Severity.WARNING)}
    texts = [counted(number, kind.value) for kind, number in counts.items() if number]
    return " and ".join(texts) or "fit for replay"


def examination_json(examination: Examination) -> dict[str, Any]:
    """Return an examination as plain data."""
    measures, roles = examination.measures, examination.roles
    suggestion = None if measures is None or not measures.records else measures.delays.suggestion()
    times = {"event_time": roles.event_time, "arrival_time": roles.arrival_time}
    return {
        "table": examination.facts.uri,
        "version": examination.facts.log.version,
        "records": examination.facts.records,
        "sampled": examination.sampled,
        "fit": examination.fit is not None,
        "columns": {
            "key": list(roles.key),
            **{name: role and {"column": role.column, "unit": role.unit} for name, role in times.items()},
            "record_id": roles.record_id,
        },
        "findings": [
            asdict(finding) | {"severity": finding.severity.value, "mend": finding.mend or None}
            for finding in examination.findings
        ],
        "delays": None
        if measures is None or suggestion is None
        else {
            "order": None if measures.order is None else list(measures.order),
            "worst_ms": measures.delays.worst_ms,
            "out_of_orderness_ms": suggestion.out_of_orderness_ms,
            "allowed_lateness_ms": suggestion.allowed_lateness_ms,
            "histogram": [
                {"bound_ms": rung.bound_ms, "behind": rung.behind, "late": rung.late}
                for rung in measures.delays.histogram()
            ],
        },
        "pipeline": None if examination.accepted is None else examination.accepted.text,
    }
