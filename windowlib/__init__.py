"""Windows over event time in pure Python: assigners, triggers, evictors, functions, timers, watermarks, one operator.

Nothing here reads a clock, does I/O or knows Spark (windowlib.spark does). Start with `spec.WindowSpec`.
docs/CONFORMANCE.md says what agrees with which engine, docs/CHECKPOINTS.md how state is stored.
"""
