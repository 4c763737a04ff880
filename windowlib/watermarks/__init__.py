"""Watermark generators, the valve that combines them, and the drivers of event time."""
