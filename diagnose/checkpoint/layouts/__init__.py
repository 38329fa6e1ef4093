"""Layouts of checkpoints: the rows of `formats/checkpoints/`, and what interprets them."""
