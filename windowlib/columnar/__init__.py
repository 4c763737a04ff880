"""Columns instead of objects: records, outputs and state as Arrow and numpy arrays, and executors that run on them."""
