"""What Acme's clusters leave behind, for diagnose."""
