"""Imported once by the process that workers are copies of: engine, catalog, templates loaded."""

from diagnose.job.warm import warm
from diagnose.serve import work
from diagnose.serve.model import PASTE, TYPES, Task

warm(PASTE, lambda folder: work.attempt(Task(folder, "text", tuple(TYPES)), lambda _: None))
