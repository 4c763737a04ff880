"""Reads what readers see of a pipeline, as Arrow tables, without Spark and Airflow.

`published(lake, pipeline)` returns the published windows. DuckDB queries an Arrow table as it is:

    windows = published("lake", "flights", keys={"origin": ["JFK"]}, from_="2013-02-08", to="2013-02-09")
    duckdb.sql("SELECT origin, sum(flights) FROM windows GROUP BY ALL")
"""

from jobs.readers import published_table as published

__all__ = ["published"]
