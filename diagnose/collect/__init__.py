"""What a job leaves behind while it still hangs: read-only probes of its processes and its nodes.

The side that runs on a node needs nothing but the standard library: compute nodes have little
else, and their processes may be short of memory.
"""
