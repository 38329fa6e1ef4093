"""Is a checkpoint whole, and from which one can the job resume?"""
