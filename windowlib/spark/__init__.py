"""windowlib on Spark: a log in order, its windows by bucket, and what comes back. The only part that knows Spark."""
