"""Explains the results of a pipeline: the fate of one record, its position in its slice, and the report page."""
