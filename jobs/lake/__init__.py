"""The Delta tables of a lake and the event log: paths, reading, appending, Delta's own log. No Spark."""
