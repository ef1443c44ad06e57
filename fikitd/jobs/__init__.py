"""Jobs: submitted commands, from the queue to their exit code."""
