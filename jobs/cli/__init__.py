"""The `hindcast` command, one module per group of commands."""
