"""HangBench: jobs that hung or died, whose truth is known because they were made here.

`python -m benchmarks.hangbench make | run | score | table`; docs/hangbench.md says what it is.
Nothing in this package imports `diagnose`: a tool is run as a command, by its adapter in `tools/`.
"""

VERSION = "1"
