"""Random event logs with hostile types, names and values, and a judge that knows the fate of each record."""
