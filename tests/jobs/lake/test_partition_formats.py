"""Partition columns in all spellings: the same records get the same slices. No Spark."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import given, strategies as st

from jobs.lake.delta_log import DeltaPlace
from jobs.lake.event_log import pin_log
from jobs.lake.log_cut import Cut
from jobs.pipeline.models.log import SliceGrammar
from jobs.runs import Slice
from windowlib.errors import LogError

HOUR_MS = 3_600_000
START = datetime(2026, 11, 1, tzinfo=UTC)
START_MS = int(START.timestamp() * 1000)
HOURS = tuple(
    Slice(
        slice_id=(START + timedelta(hours=n)).strftime("%Y-%m-%dT%H"),
        start_ms=START_MS + n * HOUR_MS,
        end_ms=START_MS + (n + 1) * HOUR_MS,
    )
    for n in range(48)
)
DAYS = tuple(
    Slice(slice_id=f"2026-11-0{n + 1}", start_ms=START_MS + n * 24 * HOUR_MS, end_ms=START_MS + (n + 1) * 24 * HOUR_MS)
    for n in range(2)
)
Values = Callable[[datetime], dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Form:
    by: str | list[str]
    format: str | None = None
    values: Values

    def grammar(self, every: str = "1d") -> SliceGrammar:
        document = {"by": self.by, "every": every, "format": self.format}
        return SliceGrammar.model_validate({key: value for key, value in document.items() if value is not None})

    @property
    def columns(self) -> list[str]:
        return [self.by] if isinstance(self.by, str) else self.by

    def __str__(self) -> str:
        value = self.values(datetime(2026, 11, 1, 5, tzinfo=UTC))
        return f"{'/'.join(map(repr, value.values()))} {self.format or ''}"


HOURLY = [
    Form(by="h", values=lambda at: {"h": at.strftime("%Y-%m-%dT%H")}),
    Form(by="h", values=lambda at: {"h": at.strftime("%Y-%m-%d %H:00:00")}),
    Form(by="h", values=lambda at: {"h": at.strftime("%Y%m%d%H")}),
    Form(by="h", values=lambda at: {"h": int(at.strftime("%Y%m%d%H"))}),
    Form(by="h", format="yyyyMMddHH", values=lambda at: {"h": int(at.strftime("%Y%m%d%H"))}),
    Form(by="h", format="yyyy/MM/dd/HH", values=lambda at: {"h": at.strftime("%Y/%m/%d/%H")}),
    Form(by="h", format="yyyy-MM-dd-HH", values=lambda at: {"h": at.strftime("%Y-%m-%d-%H")}),
    Form(by=["dt", "hour"], values=lambda at: {"dt": at.date(), "hour": at.hour}),
    Form(by=["dt", "hour"], values=lambda at: {"dt": str(at.date()), "hour": f"{at.hour:02}"}),
    Form(by=["dt", "hour"], format="yyyy/MM/dd", values=lambda at: {"dt": at.strftime("%Y/%m/%d"), "hour": at.hour}),
    Form(by=["dt", "hour"], values=lambda at: {"dt": int(at.strftime("%Y%m%d")), "hour": at.hour}),
    Form(by=["y", "m", "d", "h"], values=lambda at: {"y": at.year, "m": at.month, "d": at.day, "h": at.hour}),
    Form(by=["y", "m", "d", "h"], values=lambda at: dict(zip("ymdh", at.strftime("%Y %m %d %H").split(), strict=True))),
]
DAILY = [
    Form(by="d", values=lambda at: {"d": at.date()}),
    Form(by="d", values=lambda at: {"d": at.strftime("%Y%m%d")}),
    Form(by="d", values=lambda at: {"d": int(at.strftime("%Y%m%d"))}),
    Form(by="d", format="yyyyMMdd", values=lambda at: {"d": int(at.strftime("%Y%m%d"))}),
    Form(by=["y", "m", "d"], values=lambda at: {"y": at.year, "m": at.month, "d": at.day}),
    Form(by=["y", "m", "d"], values=lambda at: dict(zip("ymd", at.strftime("%Y %m %d").split(), strict=True))),
]


def _write(path: Path, rows: list[dict[str, Any]], names: list[str]) -> str:
    write_deltalake(str(path), pa.Table.from_pylist(rows), mode="append", partition_by=names)
    return str(path)


@pytest.mark.parametrize("form", [*HOURLY, *DAILY], ids=str)
def test_equal_records_are_in_equal_slices_whatever_the_spelling(tmp_path: Path, form: Form) -> None:
    is_hourly = form in HOURLY
    slices, every = (HOURS, "1h") if is_hourly else (DAYS, "1d")
    rows = [{"id": n, **form.values(START + timedelta(hours=n))} for n in range(48) if n % 5]
    log = _write(tmp_path / "log", rows, form.columns)
    pinned = pin_log(DeltaPlace(uri=log), by=form.grammar(every), slices=slices)
    counts = {one.slice_id: pinned.coordinates(one.slice_id).records for one in slices}
    hours = [n for n in range(48) if n % 5]
    if is_hourly:
        assert counts == {one.slice_id: int(n in hours) for n, one in enumerate(slices)}
        assert pinned.data_ms == tuple(START_MS + n * HOUR_MS for n in hours)
    else:
        assert counts == {one.slice_id: sum(n // 24 == day for n in hours) for day, one in enumerate(slices)}
        assert pinned.data_ms == (START_MS, START_MS + 24 * HOUR_MS)
    assert all(pinned.coordinates(one.slice_id).commits == ((0,) if counts[one.slice_id] else ()) for one in slices)


@given(at=st.datetimes(datetime(1970, 1, 1), datetime(2199, 12, 31), timezones=st.just(UTC)))  # noqa: DTZ001
@pytest.mark.parametrize("form", HOURLY, ids=str)
def test_a_value_is_the_hour_that_it_names(form: Form, at: datetime) -> None:
    value = "/".join(str(one) for one in form.values(at).values())
    whole = at.replace(minute=0, second=0, microsecond=0)
    assert Cut(uri="log", by=form.grammar("1h"), slices=()).instant_ms(value) == round(whole.timestamp() * 1000)


@pytest.mark.parametrize("value", ["20261101", 20261101, "2026-11-01", "2026-W44-7", "2026W447"], ids=repr)
@pytest.mark.parametrize("hour", ["", "T05", "T05Z", "T05+00:00", "T05:15", "T05:15+00"])
def test_a_value_that_is_longer_than_a_slice_is_refused(tmp_path: Path, value: str | int, hour: str) -> None:
    """A slice of a part of a day would be published with the data of the whole day, before the day is over."""
    whole = "" if ":15" in hour else "h" if hour else "d"
    log = _write(tmp_path / "log", [{"id": 1, "dt": f"{value}{hour}" if hour else value}], ["dt"])
    for every, shorter in (("1d", ""), ("1h", "d"), ("15m", "dh")):
        by = SliceGrammar.model_validate({"by": "dt", "every": every})
        for slices in (DAYS, DAYS[1:]):  # other slices do not have the value
            if slices == DAYS and whole and whole in shorter:
                with pytest.raises(LogError, match=rf"value '{value}.* is a whole (day|hour), .*every: 1{whole}"):
                    pin_log(DeltaPlace(uri=log), by=by, slices=slices)
            else:
                assert pin_log(DeltaPlace(uri=log), by=by, slices=slices).records == (slices == DAYS)


@pytest.mark.parametrize("value", ["2026-W44", "2026W44"])
def test_a_week_is_refused(tmp_path: Path, value: str) -> None:
    """It was Monday, whose slice was published before the week was over."""
    log = _write(tmp_path / "log", [{"id": 1, "dt": value}], ["dt"])
    by = SliceGrammar.model_validate({"by": "dt"})
    start_ms = START_MS - 6 * 24 * HOUR_MS
    monday = (Slice(slice_id="2026-10-26", start_ms=start_ms, end_ms=start_ms + 24 * HOUR_MS),)
    with pytest.raises(LogError, match=rf"value '{value}', which is a whole week, and a slice is a day at most"):
        pin_log(DeltaPlace(uri=log), by=by, slices=monday)


@pytest.mark.parametrize(
    ("by", "format_", "value"),
    [
        ("d", None, "1782000000"),  # seconds since 1970
        ("d", None, "20261301"),
        ("d", None, "20261101123"),  # Python alone reads a date, a separator and an hour
        ("d", None, "2026"),
        ("d", "yyyyMMdd", "2026-11-01"),
        ("d", "yyyy-MM-dd", "20261101"),
        (["dt", "h"], None, "2026-11-01/24"),
        (["dt", "h"], None, "2026-11-01T05/3"),
        (["dt", "h"], None, "2026-11-01/x"),
        (["y", "m", "d"], None, "26/11/1"),
        (["y", "m", "d"], None, "2026/13/1"),
        (["y", "m", "d"], None, "2026/-1/1"),
    ],
)
def test_a_value_that_names_no_time_is_refused_with_it(by: str | list[str], format_: str | None, value: str) -> None:
    grammar = Form(by=by, format=format_, values=lambda _: {}).grammar()
    with pytest.raises(LogError, match="of event log log ha") as refused:
        Cut(uri="log", by=grammar, slices=()).instant_ms(value)
    assert all(part in str(refused.value) for part in value.split("/"))


def test_a_null_in_one_of_several_columns_is_refused(tmp_path: Path) -> None:
    rows = [{"id": 1, "dt": "2026-11-01", "h": 1}, {"id": 2, "dt": "2026-11-01", "h": None}]
    log = _write(tmp_path / "log", rows, ["dt", "h"])
    with pytest.raises(LogError, match=r"1 record whose slice columns \['dt', 'h'\] are not all set"):
        pin_log(DeltaPlace(uri=log), by=SliceGrammar.model_validate({"by": ["dt", "h"], "every": "1h"}), slices=HOURS)


def test_every_column_must_be_a_partition_column(tmp_path: Path) -> None:
    log = _write(tmp_path / "log", [{"id": 1, "dt": "2026-11-01", "h": 1}], ["dt"])
    with pytest.raises(LogError, match=r"is not partitioned by 'h' but by \['dt'\]"):
        pin_log(DeltaPlace(uri=log), by=SliceGrammar.model_validate({"by": ["dt", "h"], "every": "1h"}), slices=HOURS)
