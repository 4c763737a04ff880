"""Documents: their values, types and order, their JSON form, and the checked reading of a stage's options."""
