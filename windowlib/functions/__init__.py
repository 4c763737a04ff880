"""Window functions and aggregates, including exact sums of doubles."""
