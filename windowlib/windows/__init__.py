"""The window operator, after Flink's: assigners, evictors, firing, merging, and the WindowSpec that builds it."""
