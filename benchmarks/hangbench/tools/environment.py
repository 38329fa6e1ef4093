"""Makes an environment with the tools of others: `python -m benchmarks.hangbench tools`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

# Versions are pinned, so that a table can be made once more. torch's builds for the CPU are enough.
PACKAGES = {
    "torchfrtrace": ["torch==2.13.0", "numpy"],
    "gpualert": ["gpualert==0.1.6"],
    # The parts of NVRx that are asked are plain Python, but it is built for a GPU's machine only:
    # its wheel is unpacked beside the environment, and this is what these parts import.
    "nvrx": ["httpx", "numpy", "packaging", "psutil", "pydantic", "pydantic-settings", "pyyaml"],
}
NVRX = "nvidia-resiliency-ext==0.7.0"
NVRX_PLATFORM = ("--platform", "manylinux_2_39_x86_64", "--python-version", "3.12")


def install(environment: Path, wheels: Sequence[Path] = ()) -> None:
    """Install what can be, and print a line for each tool that cannot.

    wheels: of tools that are in no package index, such as ascend-fd, which is built from its source
    (mind-cluster, component/ascend-faultdiag, build/build.sh).
    """
    if not (environment / "bin" / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    pip = [str(environment / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
    for tool, packages in PACKAGES.items():
        if subprocess.run([*pip, *packages], check=False).returncode:
            print(f"{tool} cannot be installed here")
    for wheel in wheels:
        if subprocess.run([*pip, str(wheel)], check=False).returncode:
            print(f"{wheel} cannot be installed here")
    only = ["--no-deps", "--only-binary=:all:", "--upgrade", "--target", str(environment / "nvrx")]
    if subprocess.run([*pip, *only, *NVRX_PLATFORM, NVRX], check=False).returncode:
        print("nvrx cannot be installed here")
