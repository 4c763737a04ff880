"""Leaves out the tests that import apache-beam if it is not installed. The project's environment always has it."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("apache_beam") else ["test_differential.py", "test_slips.py"]
