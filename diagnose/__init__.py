"""diagnose: why did a distributed training job hang or die, who is to blame, what now?"""

__version__ = "0.1.0"
