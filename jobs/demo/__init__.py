"""The demonstrations `make demo` and `make year`, and the log of flights that they and the tests use."""
