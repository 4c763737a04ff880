"""The grammar of a pipeline file as pydantic models, one module per part of the file."""
