"""Why this verdict: what the steps of inference left beside their results, as reasons.

The steps give names of predicates; here they become records of the diagnosis, with a sentence and
the first lines of what they are about. Nothing here decides anything.
"""
