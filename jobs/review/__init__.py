"""Answers a reviewer's questions: what happened to a record, and where a record is in its slice."""
