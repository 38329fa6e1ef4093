"""Decisions that other programs carry out: which nodes to take out, whether to start again.

`record` derives them from a diagnosis or from the suspect nodes of a fleet; `forms` writes them as
Slurm, Kubernetes and others take them, `webhooks` as messages; `outcome` says whether they helped.
"""
