"""Differences between two views of a pipeline, and the rule for windows that are settled."""
