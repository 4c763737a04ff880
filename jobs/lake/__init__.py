"""The Delta tables of a lake and the event log: paths, reading, appending. No Spark.

Hindcast's own tables: `lake` names their places, `delta_tables` opens them and keeps them open, `store` creates them
and reads the rows of attempts, `file_commits` commits files that tasks have written, and appends rows. A file is a
`TableFile` (`table_files`). `stored_columns` compares the columns of a table with those of its files. `damage` reports
a file that cannot be read.

The event log belongs to the user and is only read. `event_log.pin_log` fixes the input of a replay in four steps:
`delta_log` opens one version and lists its data files (`log_files` lists the files of its `_delta_log`), `slicing`
assigns each file to slices, `commit_history` reads which commits added records and whether one removed some, and
`event_log` refuses a log that did not only grow (`pinned_files`: that lost files or records). The result holds the
coordinates of each slice. `log_match` compares these coordinates with those of an earlier run.

`slicing_choice` chooses how slices are told: by partitions (`log_cut`), by a column of times (`column_slices`,
`slice_instants`) or by the times of commits (`commit_slices`).

A log has one of four formats (`log_places`): a Delta table (`delta_log`), the inserts of one (`inserts_place`), an
Iceberg table (`iceberg_place`) or a directory of Parquet files (`parquet_place`). Each has a subclass of `LogVersion`
(`log_version`). A table that was restored and written to since is a `restored_place`. A file of a log is a `DataFile`,
and with its slice a `PinnedFile`.

`row_tracking` reads the row ids of each file, `append_order` finds the order in which the files were appended
(`file_origins`: from the commits that added them), and `direct_reading` tells whether Python tasks can read the files
themselves. Only `log_rows` reads records (single ones, for `explain`), and `column_slices` one column of files with
records of several slices. `covered_files` compares the bytes of the log's files with checksums, or with digests that
runs have stored (`known_log`).
"""
