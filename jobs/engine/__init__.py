"""Compiles a pipeline to an Engine: an operator spec, a driver of time, columns, and the user's functions."""
