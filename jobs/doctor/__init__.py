"""Judges whether an event log is fit for replay, and proposes its first pipeline file. Without Spark."""
