"""Sessions by column: grouping, lateness, contents, and the groups that the operator computes."""
