"""Spark's reader of `s3://` places: the S3A file system of Hadoop, with its jars and settings.

Only DataFrames need it. Tasks read and write files with Arrow, and the driver commits with deltalake. So the jars are
fetched only by `make s3`. Credentials are not settings of Spark: each JVM finds them in its own environment.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jobs.spark.jars import JarsMissing, s3_jars
from jobs.storage import is_s3, storage_settings


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectStorage:
    """What Spark needs to read object storage: its jars, and settings without secrets. Both may be empty."""

    jars: tuple[Path, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)


def object_storage(reads: Sequence[str], *, may_read: Sequence[str] = ()) -> ObjectStorage:
    """Return what Spark needs for places.

    DataFrames will read the places `reads`, and perhaps `may_read`, for which Spark gets the jars if they are present.

    Raises:
        JarsMissing: a place of `reads` is in object storage, and a jar is missing.
        RequestError: a variable of the object storage has a value that is not allowed.
    """
    is_needed = any(map(is_s3, reads))
    if not is_needed and not any(map(is_s3, may_read)):
        return ObjectStorage()
    try:
        jars = s3_jars()
    except JarsMissing:
        if is_needed:
            raise
        return ObjectStorage()
    return ObjectStorage(jars=tuple(jars), settings=storage_settings().for_spark())
