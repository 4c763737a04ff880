"""Suites of checks in Great Expectations' own format, and the only code that imports Great Expectations.

`expectations.loader` reads and validates a suite file without Great Expectations, in milliseconds.
`expectations.slices` runs a suite over many slices of a table. `expectations.compiled` computes the common expectations
on columns, with the results of Great Expectations.
`expectations.runner` runs the others with Great Expectations; its first call imports it, which takes seconds.
`expectations.messages` describes a check and its result in words. This package does not depend on runs or the ledger;
`jobs.replay.checks` connects it to them.
"""
