"""Judges whether a Delta table is fit for replay, and proposes its first pipeline file. Without Spark."""
