"""The grammar of pipeline files as pydantic models, one module for each part of the file."""
