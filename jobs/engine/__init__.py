"""Compiles a pipeline to an Engine: operator spec, driver of time, columns and users' functions."""
