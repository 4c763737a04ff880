"""Atlas's expression language, with one module per family of operators."""
