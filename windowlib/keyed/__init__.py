"""State by key: key groups, key order, timers, user state, snapshots, and the operator protocol."""
