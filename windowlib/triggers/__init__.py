"""The trigger protocol, Flink's triggers, and triggers that wrap another trigger."""
