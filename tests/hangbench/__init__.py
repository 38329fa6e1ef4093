"""HangBench: `python -m benchmarks.hangbench`; see docs/hangbench.md."""
