"""Flink's window operator: assigners, evictors, firing, merging, and the WindowSpec that builds it."""
