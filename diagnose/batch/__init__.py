"""Many jobs: find them, diagnose each in a worker, keep the results as a table that can grow.

jobs → work (in workers) → results; `run.scan` drives them, `progress` tells how it goes.
"""
