"""Processes: workers of this package, and bounded children that are programs or probes."""
