"""Replays one chunk of slices in Spark: pin, order, time, windows, write, audit, check."""
