"""Sample pipelines over the log of flights: a base, and every form of the grammar as a named change to the base."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from jobs.pipeline.files import build_pipeline
from jobs.pipeline.models.pipeline import Pipeline

COLUMNS: Final[Mapping[str, str]] = {
    "flight_id": "string", "carrier": "string", "flight": "int", "tailnum": "string", "origin": "string",
    "dest": "string", "departed_at": "bigint", "reported_at": "bigint", "dep_delay": "double", "arr_delay": "double",
    "air_time": "double", "distance": "double", "ingest_date": "date", "rest_s": "int", "marked_at": "timestamp",
}  # fmt: skip

OURS: Final = "tests.support.functions"
_FORMS: Final[Mapping[str, Any]] = yaml.safe_load((Path(__file__).parent / "grammar_forms.yaml").read_text())


def document(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - parts of a file
    """Return the base as data, with some parts replaced; None removes a part."""
    whole = {**_FORMS["base"], **changes}
    return {key: part for key, part in whole.items() if part is not None}


def pipeline(**changes: Any) -> Pipeline:  # noqa: ANN401 - parts of a file
    """Return the base with some parts replaced; None removes a part."""
    return build_pipeline(document(**changes), source="sample.yaml")


def every_form() -> dict[str, dict[str, Any]]:
    """Return every form of the grammar as changes to the base, by part and name."""
    tumbling = {"tumbling": {"size": "1h"}}
    of_part: dict[str, Callable[[Any], dict[str, Any]]] = {
        "watermark": lambda form: {"watermark": form},
        "windows": lambda form: {"windows": form},
        "trigger": lambda form: {"windows": tumbling | {"trigger": form, "leftovers": "report"}},
        "storm": lambda form: {"watermark": None, "windows": {"storm": form}},
        "atlas": lambda form: {"watermark": None, "aggregates": None, "windows": {"atlas": form}},
        "process": lambda form: {"aggregates": None, "process": form},
    }
    forms = {
        f"{part}-{name}": changes(form) for part, changes in of_part.items() for name, form in _FORMS[part].items()
    }
    return {**forms, **_FORMS["whole"]}
