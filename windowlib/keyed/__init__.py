"""State by key: key groups, key order, timers, users' state, snapshots, and the operator protocol."""
