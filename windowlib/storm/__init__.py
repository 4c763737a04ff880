"""Apache Storm: its windows (policies and window manager), and its acker, which the audit of every run uses."""
