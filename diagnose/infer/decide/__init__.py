"""From hypotheses to one decision: ranking and fusion of evidence."""
