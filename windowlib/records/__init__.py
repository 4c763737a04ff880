"""Values that every operator shares: records, outputs, tables, row ids, instants, counts of edges."""
