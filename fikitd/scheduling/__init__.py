"""Scheduling: its settings, and later its planners. The policies themselves are native (native/scheduling)."""
