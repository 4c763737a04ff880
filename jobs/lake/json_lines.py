"""Reads the lines of a commit or a checkpoint of JSON."""

import json
from typing import Any


def json_lines(raw: bytes) -> list[Any]:
    """Return the value of each line that is not blank.

    Only a line feed ends a line. `str.splitlines` also ends one at U+0085, U+2028 and others, which JSON allows inside
    texts: deltalake writes them as they are into the statistics of a column.
    Raises ValueError: the bytes are not UTF-8, or a line is not JSON.
    """
    return [json.loads(line) for line in raw.decode("utf-8").split("\n") if line.strip()]
