"""The timeline of a job: its events, how they are built, and their columns."""
