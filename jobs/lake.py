"""Where things lie in a lake: `<lake>/<pipeline>/<table>` for our tables, the log where the pipeline file says."""

import re
from dataclasses import dataclass
from pathlib import Path

from jobs.pipeline_models import Pipeline
from windowlib.errors import SpecError

_NAME = re.compile(r"[a-z][a-z0-9_]{0,127}", re.ASCII)
# deltalake makes a URL of every path, and either cannot or decodes it once too often.
_UNREADABLE = re.compile(r"[\[\]\\^|\x00-\x1f\x7f]|%[0-9A-Fa-f]{2}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lake:
    """A directory or a URI; paths below it are made of validated names, so nothing climbs out."""

    root: str

    def __post_init__(self) -> None:
        if not self.root.strip() or "\0" in self.root:
            raise SpecError(
                f"the lake root must be a directory or a URI, found {self.root!r}; pass --lake or set HINDCAST_LAKE"
            )
        if self.is_local:
            _refuse_unreadable(str(Path(self.root).resolve()), "lake root")

    @property
    def is_local(self) -> bool:
        """Whether the lake is a directory of this machine."""
        return "://" not in self.root

    def table(self, pipeline: str, table: str) -> str:
        """The path or URI of one table of a pipeline.

        Raises:
            SpecError: a name with anything but lower-case letters, digits and `_`.
        """
        for name in (pipeline, table):
            if not _NAME.fullmatch(name):
                raise SpecError(f"{name!r} is no name of a pipeline or table: lower-case letters, digits and _ only")
        return self._below(f"{pipeline}/{table}")

    def ledger(self, pipeline: str) -> str:
        """The path or URI of a pipeline's ledger."""
        return self.table(pipeline, "ledger")

    def event_log(self, pipeline: Pipeline) -> str:
        """The path or URI of the pipeline's event log: relative to the lake, or its own.

        Raises:
            SpecError: a path that Delta tables cannot have.
        """
        table = pipeline.log.table
        if "://" not in table:
            _refuse_unreadable(table, f"log.table of pipeline {pipeline.name}")
        return table if "://" in table or Path(table).is_absolute() else self._below(table)

    def below(self, relative: str) -> str:
        """The path or URI of something that a pipeline file names relative to the lake, such as a marker.

        Raises:
            SpecError: the path climbs out of the lake.
        """
        if ".." in relative.split("/") or Path(relative).is_absolute() or "://" in relative:
            raise SpecError(f"{relative!r} must be a path below the lake, without '..'")
        return self._below(relative)

    def _below(self, relative: str) -> str:
        return str(Path(self.root) / relative) if self.is_local else f"{self.root.rstrip('/')}/{relative}"


def _refuse_unreadable(path: str, name: str) -> None:
    found = _UNREADABLE.search(path)
    if found is not None:
        raise SpecError(
            f"the {name} {path!r} has {found[0]!r} in it, and no Delta table can be read there; choose a path without "
            "[ ] \\ ^ | and control characters, and without % before two digits"
        )
