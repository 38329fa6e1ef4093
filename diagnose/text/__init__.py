"""Small helpers for text that several packages print."""
