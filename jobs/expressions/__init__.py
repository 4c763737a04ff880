"""Expressions over records: derived columns and the filter as plain data, and their evaluation. Tasks import it.

`jobs.pipeline.models.expressions` parses the texts of a pipeline file into them.
"""
