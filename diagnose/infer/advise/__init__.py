"""What to do about a root cause, and how it came about, in words."""
