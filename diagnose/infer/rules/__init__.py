"""Rules: each proposes hypotheses about the root cause."""
