"""The compiled catalog and its pass over a source."""
