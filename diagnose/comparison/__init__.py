"""What two runs of a job differ in: the good one and the bad one."""

from diagnose.comparison.differ import compare, compared
from diagnose.comparison.model import Comparison, Difference

__all__ = ["Comparison", "Difference", "compare", "compared"]
