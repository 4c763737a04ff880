"""The run of a request: staging chunk by chunk, checks, publication. And the tasks of the DAGs."""
