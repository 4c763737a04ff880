"""Explains the number of one window: its records in log order, the watermark that each met, and its panes."""
