"""Track sim: parallel jobs in their true semantics, with a fault, in the forms real jobs leave.

programs.py draws what every rank runs, faults.py changes it, machine.py computes what stands still
then, evidence/ prints it, damage.py loses a part of it, and oracle.py says what is left to be
concluded from the rest. draw.py joins these for a seed.
"""

from benchmarks.hangbench.sim.draw import make, ranks

__all__ = ["make", "ranks"]
