"""Detects whether a window stage reads the replay's clock (`$$NOW`)."""

import json
from collections.abc import Mapping
from typing import Final

from windowlib.atlas.documents.places import SYSTEM_VARIABLES, Json, Place
from windowlib.atlas.expressions.expressions import compile_expression
from windowlib.atlas.stages.stages import compile_pipeline
from windowlib.atlas.window_stages import Sessions, Windows, read_windows
from windowlib.errors import SpecError

_WITHOUT_CLOCK: Final = Place("", SYSTEM_VARIABLES - {"NOW"})


def reads_clock(stage: Mapping[str, Json]) -> bool:
    """Tell whether a valid window stage reads `$$NOW` in its pipeline or its partition.

    Raises SpecError: `stage` is not a window stage.
    """
    windows, pipeline, _ = read_windows(stage)
    return uses_now(windows, pipeline)


def uses_now(windows: Windows, pipeline: Json) -> bool:
    """Tell whether windows and a pipeline compile only with `$$NOW`. Some of earlier versions do not compile at all."""
    return not _compiles(windows, pipeline, _WITHOUT_CLOCK) and _compiles(windows, pipeline, Place(""))


def _compiles(windows: Windows, pipeline: Json, place: Place) -> bool:
    try:
        compile_pipeline(pipeline, place)
        if isinstance(windows, Sessions):
            compile_expression(json.loads(windows.partition_by), place)
    except SpecError:
        return False
    return True
