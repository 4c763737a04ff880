"""Which slices a request replays: fingerprints, the state of the log, the plan, and the lease of the request."""
