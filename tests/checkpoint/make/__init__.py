"""Writers of checkpoints for tests, one module per framework, without the frameworks."""
