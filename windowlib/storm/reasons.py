"""The reasons, as stored in the tables, why no Storm window held a record."""

from typing import Final

LATE_STREAM: Final = "late_stream"
"""The record is late, and Storm sends it to the late stream."""
LATE_LOGGED: Final = "late_logged"
"""The record is late, and there is no late stream; Storm only logs it."""
BEFORE_START: Final = "S4_before_1970"
"""Profile storm: the record is before 1970, and so late before the first watermark."""

AFTER_ITS_WINDOW: Final = "closed:S1_after_its_window"
"""Profile storm: the record's time equals the watermark, and the window that ends there had fired before it arrived."""
BEHIND_STOP: Final = "closed:S2_behind_stop"
"""Profile storm: the record was in the queue behind a tuple beyond the lag, at which the scan of its window ended."""
OUT_OF_ORDER: Final = "closed:S3_out_of_order"
"""Profile storm: a count length expired the record as the oldest arrival, before its time was due."""
BETWEEN_WINDOWS: Final = "closed:between_windows"
"""The record is between windows: the slide is longer than the length, or had more tuples than a count length."""
