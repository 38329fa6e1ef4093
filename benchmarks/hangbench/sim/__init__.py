"""Track sim: parallel jobs in their true semantics, with a fault, in the forms real jobs leave.

programs.py draws what every rank runs, faults.py changes it, machine.py computes what stands still
then (`Outcome`), evidence/ prints it (`Line`, dumps, reports, stacks), damage.py loses a part of
it, and oracle.py says what is left to be concluded from the rest. case.py joins these.
"""
