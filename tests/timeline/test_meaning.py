"""What lines tell: those of programs, and those who go on, tell of no failure."""

from __future__ import annotations

import pytest

from .told import matches, timeline

NAMED = "operator torchvision::nms does not exist"
ID = "torch.compile.binary-mismatch"


def told(line: str) -> set[str | None]:
    """The entries that a line of a log is found to be of, of causes only."""
    return {event.signature for event in matches(timeline(job=line)) if event.role == "cause"}


def test_an_error_is_a_cause() -> None:
    assert ID in told(f"RuntimeError: {NAMED}")


@pytest.mark.parametrize(
    "line",
    [
        f"Ignore import error when loading models.vit: {NAMED}",
        f"WARNING Ignoring plugin vit: {NAMED}",
        f"[INFO] Skipping vit: {NAMED}",
        f"vit cannot be loaded: {NAMED}. Proceeding without it.",
        f"vit cannot be loaded: {NAMED}; continuing anyway",
        f"{NAMED}, falling back to the slow one",
        f"{NAMED}; this model will be skipped",
    ],
)
def test_who_goes_on_without_it_names_no_cause(line: str) -> None:
    assert told(line) == set()


@pytest.mark.parametrize(
    "line",
    [
        f"{NAMED}: see the list of ignored options",
        "torch.OutOfMemoryError: CUDA out of memory. Falling back to nothing",
    ],
)
def test_what_is_said_of_something_else_or_is_beyond_doubt_counts(line: str) -> None:
    assert told(line)


@pytest.mark.parametrize(
    "line",
    [
        "-        raise OSError(f'Run dir \"{self.run_dir}\" exists')",
        "+    raise ValueError('Unknown model \"{%s}\"' % (arch))",
        '    raise RuntimeError(f"CUDA out of memory on {device.index}")',
        "                f'CUDA out of memory: {free.bytes} left'",
    ],
)
def test_lines_of_a_program_tell_nothing(line: str) -> None:
    assert told(line) == set()


@pytest.mark.parametrize(
    ("name", "ids"),
    [("Counting tokens", {"tqdm.bar.other"}), ("Map (num_proc=8)", {"tqdm.bar.preparation"})],
)
def test_a_bar_of_a_name_that_is_known_is_no_other_bar(name: str, ids: set[str]) -> None:
    bar = f"{name}:  45%|████▌     | 4500/10000 [01:23<01:41, 54.2 examples/s]"
    assert {event.signature for event in matches(timeline(job=bar))} == ids
