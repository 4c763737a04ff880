"""The report: one HTML page about a pipeline, without scripts.

`collect` reads the ledger and the tables into plain `rows`. `model` and `checks` compute all texts and numbers of the
page from them. `page` renders the model with `svg` and `slice_calendar`.
"""
