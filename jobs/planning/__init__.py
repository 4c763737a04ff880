"""Decides which slices a request replays: fingerprints, the state of the log, the plan, and the request's lease."""
