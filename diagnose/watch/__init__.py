"""Following the logs of a running job: its heartbeat, and word of it when progress stops."""
