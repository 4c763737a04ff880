"""Tools to test your own triggers, assigners and functions: a harness, contracts, and the conformance player."""
