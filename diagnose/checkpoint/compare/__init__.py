"""The checkpoints of one run compared with each other."""
