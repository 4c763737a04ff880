"""Suites of checks in Great Expectations' own format, and the only code that imports Great Expectations.

`expectations.loader` reads a suite file strictly and without Great Expectations (milliseconds), `expectations.runner`
runs a suite over one table (the first call imports Great Expectations, 7 s), `expectations.wording` puts a check into
words. Nothing here knows of slices, runs or the ledger: `jobs.replay.checks` does.
"""
