"""What each process of a run did: one story a process, folded from the events of its lines."""
