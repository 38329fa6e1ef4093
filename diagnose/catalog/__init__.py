"""YAML catalog of signatures: schema, loading, validation and the compiled matcher."""
