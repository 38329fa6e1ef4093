"""Timeline → Diagnosis; `pipeline.diagnose` runs the steps in order."""
