"""The Delta tables of a lake and the event log: paths, reading, appending. No Spark.

Hindcast's own tables: `lake` names their places, `store` creates them, appends rows and reads the rows of attempts,
`file_commits` commits files that tasks have written (`file_statistics` makes their statistics), `listing` finds the
files of attempts, and `damage` reports a file that cannot be read. `delta_tables` keeps the tables that a thread has
opened.

The event log belongs to the user and is only read. `event_log.pin_log` fixes the input of a replay in four steps:
`delta_log` opens one version and lists its data files (`log_files` lists the files of its `_delta_log`), `slicing`
assigns each file to slices, `commit_history` reads which commits added records and whether one removed some, and
`event_log` refuses a log that did not only grow (`pinned_files`: that lost files or records). The result holds the
coordinates of each slice. `log_match` compares these coordinates with those of an earlier run.

`slicing_choice` chooses how slices are told: by partitions (`partition_slices`, `log_cut`), by a column of times
(`column_slices`, `slice_instants`) or by the times of commits (`commit_slices`).

`row_tracking` reads the row ids of each file, `append_order` finds the order in which the files were appended
(`file_origins`: from the commits that added them), and `direct_reading` tells whether Python tasks can read the files
themselves. Only `log_rows` reads records (single ones, for `explain`), and `column_slices` one column of files with
records of several slices. `covered_files` compares the bytes of the log's files with checksums, or with digests that
runs have stored (`known_log`).
"""
