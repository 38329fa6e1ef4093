"""A job as a whole: its sources, its timeline, its ranks."""
