"""The stages of the pipeline inside an Atlas window."""
