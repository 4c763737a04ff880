"""Expressions of a pipeline file (`log.columns`, `log.where`): their syntax, and what they derive from a log."""
