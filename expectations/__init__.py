"""Suites of checks in Great Expectations' own format, and the only code that imports Great Expectations.

`expectations.loader` reads and validates a suite file without Great Expectations, in milliseconds.
`expectations.runner` runs a suite over one table; its first call imports Great Expectations, which takes 7 s.
`expectations.wording` describes a check and its result in words. This package does not depend on slices, runs or the
ledger; `jobs.replay.checks` connects it to them.
"""
