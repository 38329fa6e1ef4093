"""Version conditions of known issues."""

import pytest

from diagnose.catalog.entries import how_to_check, meets, parsed


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("torch >=2.1,<2.3", ("torch", ((">=", "2.1"), ("<", "2.3")))),
        ("ms-swift == 3.1.0.post1", ("ms-swift", (("==", "3.1.0.post1"),))),
        ("aws-ofi-nccl<1.7, !=1.6.2", ("aws-ofi-nccl", (("<", "1.7"), ("!=", "1.6.2")))),
        ("torch ~=2.1", None),
        ("torch 2.1", None),
        ("torch >=2.1 <2.3", None),
        ("torch >=2.1,", None),
        (">=2.1", None),
    ],
)
def test_conditions_are_read(condition: str, found: object) -> None:
    assert parsed(condition) == found


@pytest.mark.parametrize(
    ("have", "clause", "answer"),
    [
        ("2.10.0+cu121", ">2.9.1", True),
        ("2.10", "==2.10.0", True),
        ("v0.8.5", "<0.8.5.post1", True),
        ("0.8.5.post1", "<0.8.5.post1", False),
        ("0.8.5.post1", "<=0.8.5", False),
        ("0.8.5.post1", "<0.8.6", True),
        ("535.104.12", "<535.104.5", False),
        ("2.6.0a0+df5bbc09d1.nv24.12", "<2.6", None),  # before or after the change
        ("2.6.0.dev20241112+cu121", ">=2.6", None),
        ("2.6.0rc2", "<2.7", True),
        ("2.6.0rc2", "<2.5", False),
        ("2.6.0rc2", "<2.6.0rc2", False),
        ("2.6.0rc2", ">=2.1,<2.5", False),
        ("1.14.0a0+44dac51c.nv23.02", ">=1.13,<2.0", True),
        ("unknown", ">=1", False),
    ],
)
def test_versions_are_compared(have: str, clause: str, answer: bool | None) -> None:
    assert meets({"package": have}, f"package {clause}") is answer


def test_the_version_of_another_package_says_nothing() -> None:
    assert meets({"torch": "2.1"}, "vllm <1") is None


@pytest.mark.parametrize(
    ("condition", "command"),
    [("vllm <0.9", "pip show vllm"), ("openmpi <5", "ompi_info --version"), ("no", "pip show ")],
)
def test_how_to_check(condition: str, command: str) -> None:
    assert how_to_check(condition) == command
