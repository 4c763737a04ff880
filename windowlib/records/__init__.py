"""The values that all operators share: records, outputs, tables, row ids, instants, tallies of edges."""
