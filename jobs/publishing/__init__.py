"""Changes what readers see: publish, waive, roll back, resume, and the rules for each."""
