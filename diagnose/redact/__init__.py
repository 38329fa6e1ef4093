"""Hides secrets and people: what of a text must not leave the house."""
