"""The expression language of Atlas: one module per family of operators."""
