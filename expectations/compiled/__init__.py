"""Common expectations, compiled to passes over columns for all slices at once, without Great Expectations.

`compile_check` returns a `Measure`, or None if the expectation is not compiled for the types of its columns; then Great
Expectations itself runs it. A measure is fed all rows once (`Rows`: a batch of columns with the slice number of each
row), sometimes twice, and returns the `Answer` of each slice. An answer has the values that Great Expectations returns
on pandas. `tests/expectations/test_compiled.py` compares the two on random tables.
"""
