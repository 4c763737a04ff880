"""The stages of an Atlas window's inner pipeline."""
