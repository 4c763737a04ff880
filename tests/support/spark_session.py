"""The type of the session that tests share. They name it in annotations, and pytest collects them without Spark."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
else:
    SparkSession = object

__all__ = ["SparkSession"]
