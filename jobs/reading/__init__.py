"""Reads rows of runs without Spark, and compares them with the ids and digests in the ledger."""
