"""Wraps a table so that both engines check the same values: NaN is null, and times are in UTC on every machine."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame

Engine = Literal["pandas", "spark"]


class PandasTable:
    """A table on pandas, where NaN means null already. All times get the zone UTC."""

    engine: Engine = "pandas"

    def __init__(self, frame: "pd.DataFrame") -> None:
        import pandas as pd

        kinds = list(frame.dtypes.items())
        zoned = {name: frame[name].dt.tz_convert("UTC") for name, kind in kinds if isinstance(kind, pd.DatetimeTZDtype)}
        naive = {
            name: frame[name].dt.tz_localize("UTC") for name, kind in kinds if kind.kind == "M" and name not in zoned
        }
        self.frame = frame.assign(**{str(name): column for name, column in (zoned | naive).items()})

    def only_value(self, column: str) -> Any:  # noqa: ANN401 -- any value of a table
        """Return the value of `column` if the table has exactly one row, otherwise None."""
        return self.frame[column].iloc[0] if len(self.frame) == 1 and column in self.frame else None

    def plain(self, value: Any) -> Any:  # noqa: ANN401 -- any value of a table
        """Return a value of the table with its times in UTC; on pandas they are in UTC already."""
        return value


class SparkTable:
    """A table on Spark. NaN becomes null as on pandas, because Spark treats NaN as the greatest number."""

    engine: Engine = "spark"

    def __init__(self, frame: "DataFrame") -> None:
        from pyspark.sql import functions

        doubles = [name for name, kind in frame.dtypes if kind in {"double", "float"}]
        columns = {name: functions.col(f"`{name}`") for name in doubles}
        self.frame = frame.withColumns(
            {name: functions.when(~functions.isnan(column), column) for name, column in columns.items()}
        )

    def only_value(self, column: str) -> Any:  # noqa: ANN401, ARG002 -- as PandasTable.only_value
        """Return None: a table of one row is always checked on pandas."""
        return None

    def plain(self, value: Any) -> Any:  # noqa: ANN401 -- any value of a table
        """Return a value of the table with its times in UTC; Spark returns them in the machine's zone."""
        if isinstance(value, datetime):
            return value.astimezone(UTC)
        if hasattr(value, "asDict"):
            return self.plain(value.asDict())
        if isinstance(value, Mapping):
            return {name: self.plain(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.plain(item) for item in value]
        return value


Table = PandasTable | SparkTable


def table_of(frame: "pd.DataFrame | DataFrame", engine: Engine) -> Table:
    """Return `frame`, a pandas or Spark DataFrame according to `engine`, as a table."""
    return PandasTable(frame) if engine == "pandas" else SparkTable(frame)
