"""Names of test cases that are the same in every process."""

import re


def name_of(part: object) -> str:
    """A part as text, without the addresses of functions: two workers of one run must agree on it."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(part))
