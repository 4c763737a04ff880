"""Window functions and aggregates, with exact sums."""
