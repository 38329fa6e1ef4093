"""A container without a driver: the toolkit that says so is installed."""

import diagnose

LOG = """\
  Warning  Failed  12s  kubelet  Error: failed to create containerd task: failed to create \
shim task: \
OCI runtime create failed: runc create failed: unable to start container process
nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown
"""


def test_a_driver_that_is_not_loaded_is_not_a_missing_toolkit() -> None:
    result = diagnose.diagnose(diagnose.load_text(LOG))
    cause = result.root_cause
    assert (cause.cause, cause.signature) == ("env.version", "gpu.container.driver-not-loaded")
    lines = [line for step in result.remedies for run in step.run for line in run.lines]
    assert "lsmod | grep nvidia" in lines
    assert not [line for line in lines if "docker" in line or "nvidia-ctk" in line]
