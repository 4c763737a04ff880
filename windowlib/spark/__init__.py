"""windowlib on Spark: the order of a log, the windows by key group, and what comes back. The only part that knows Spark."""
