"""Imported once by the process that workers are copies of: the engine loaded, the catalog ready."""

from diagnose.batch.jobs import JobRef
from diagnose.batch.work import Options, diagnose_one
from diagnose.job.warm import warm

warm("job.log", lambda folder: diagnose_one(JobRef("job", "folder", folder), Options()))
