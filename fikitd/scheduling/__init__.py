"""Scheduling: its settings, and later its planners. The policies are native (native/scheduling)."""
