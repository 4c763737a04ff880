"""Why a record that entered Storm's windows, or came too late for them, was not seen there: the words of the tables."""

from typing import Final

LATE_STREAM: Final = "late_stream"
"""A late record; Storm sends it to the late stream."""
LATE_LOGGED: Final = "late_logged"
"""A late record without a late stream; Storm only logs it."""
BEFORE_START: Final = "S4_before_1970"
"""profile storm: a record before 1970 is late before there is a watermark."""

AFTER_ITS_WINDOW: Final = "closed:S1_after_its_window"
"""profile storm: it came at the watermark, when the window that ends there had fired."""
BEHIND_STOP: Final = "closed:S2_behind_stop"
"""profile storm: it stood behind a tuple beyond the lag, where the scan of its window ended."""
OUT_OF_ORDER: Final = "closed:S3_out_of_order"
"""profile storm: a count length dropped it as the oldest to arrive, before its turn by time had come."""
BETWEEN_WINDOWS: Final = "closed:between_windows"
"""No window reaches so far back: the slide is longer than the length, or had more tuples than a count length."""
