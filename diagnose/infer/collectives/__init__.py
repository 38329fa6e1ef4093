"""Who issued which collective of which group: who waits for whom, and where calls differ."""
