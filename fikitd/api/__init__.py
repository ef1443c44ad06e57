"""The daemon's side of the control protocol."""
