"""What two runs of a job differ in: the good one and the bad one."""

from diagnose.compare.differ import compare, compared
from diagnose.compare.model import Comparison, Difference

__all__ = ["Comparison", "Difference", "compare", "compared"]
