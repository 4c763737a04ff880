"""The changes of what readers see: publication, waiver, rollback, resuming, and their rules."""
