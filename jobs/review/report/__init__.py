"""The report: one HTML page about a pipeline, without scripts.

`collect` reads the ledger and the tables into plain `rows`. `model` and `checks` compute all texts and numbers of the
page from them. `differences` has what the newest open request would change. `page` renders all with `svg` and
`slice_calendar`.
"""
