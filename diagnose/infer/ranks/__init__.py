"""What every rank was about: one story a rank, out of all that its lines tell."""
