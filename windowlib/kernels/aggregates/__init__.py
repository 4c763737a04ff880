"""Aggregates over whole columns: running states of many windows as columns, equal to the record-at-a-time ones."""
