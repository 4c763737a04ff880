"""Apache Storm's windows (policies and window manager) and Storm's acker, which the audit of every run uses."""
