"""Running one bucket of a chunk: choice of the executor, checked restore, ids and tallies of its rows."""
