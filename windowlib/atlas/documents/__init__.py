"""Documents: values, their types and order, JSON, and checked access to a stage's options."""
