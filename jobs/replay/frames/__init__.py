"""The way of a replay that takes any log: Spark reads, orders and shuffles the records, and writes the tables."""
