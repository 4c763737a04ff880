"""Expressions of a pipeline file (`log.columns`, `log.where`): their syntax, their types, and their evaluation."""
