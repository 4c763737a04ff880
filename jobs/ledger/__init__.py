"""The ledger of a pipeline: a hash-chained table of events, its compare-and-set writes, and the view over them."""
