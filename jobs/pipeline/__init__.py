"""Pipeline files: reads YAML, checks it against the models, and reports errors by key."""
