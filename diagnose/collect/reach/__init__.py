"""How `collect` reaches every node of a job: by what the site has, and by nothing of our own.

A launcher (Slurm, Kubernetes, ssh, or any command that starts a process on each node) runs one
program on each node, which answers with a tar stream; the streams are joined into one bundle.
"""
