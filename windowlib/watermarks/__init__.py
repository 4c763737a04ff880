"""Watermarks: generators, the time drivers of a replay and its timeline, the valve, and Flink 1.x adapters."""
