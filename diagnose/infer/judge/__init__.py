"""Who waits for whom: what every witness says of ranks that stand still, judged as one graph."""
