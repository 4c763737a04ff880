"""Reads pipeline files: strict YAML, the models of the grammar, errors by key, and the slices of a pipeline."""
