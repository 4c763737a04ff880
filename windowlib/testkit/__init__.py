"""Tools to test users' triggers, assigners, evictors and functions: a harness, contracts, the conformance player."""
