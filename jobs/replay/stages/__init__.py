"""The way of a replay that reads the log's files in Python tasks: Spark schedules and retries them, and moves no rows.

Tasks exchange rows through shuffle files: Arrow files in a directory of the attempt. The driver holds counts and steps.
"""
