"""Scheduling, as it is configured. The policies are native (native/scheduling)."""
