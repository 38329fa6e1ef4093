"""The fleet report in its forms; input is a `diagnose.fleet.Fleet`.

terminal, json and csv are for one person and programs; html is one page for colleagues;
slurm_exclude is a list of suspect nodes that Slurm's commands take.
"""
