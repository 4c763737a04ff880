"""The report: one HTML page about a pipeline, without scripts."""
