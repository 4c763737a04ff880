"""Runs a request to its end: stages chunk by chunk, judges, publishes; and the tasks of the DAGs."""
