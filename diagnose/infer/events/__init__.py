"""What the lines of a log say: attempts, failures, phases, onset, watchdogs, tracebacks."""
