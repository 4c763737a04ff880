"""Event-time windows in pure Python: assigners, triggers, evictors, timers, watermarks, one operator."""
