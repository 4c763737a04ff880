"""The columnar executor: window aggregates over whole columns, with the same results as the operator."""
