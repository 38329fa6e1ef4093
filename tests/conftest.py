"""What all tests share: one compiled catalog; property tests with the same examples each time."""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=20)
# with `-m hypothesis --hypothesis-profile thorough`
settings.register_profile("thorough", derandomize=True, deadline=None, max_examples=200)
settings.load_profile("repeatable")


@pytest.fixture(scope="session", autouse=True)
def one_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What is compiled is so once, for all workers of a run and the commands that tests start.

    The catalog itself came compiled with an editable installation, unless it has changed since.
    """
    home = tmp_path_factory.getbasetemp()
    shared = "PYTEST_XDIST_WORKER" in os.environ
    if shared:
        home = home.parent
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(home / "cache"))
        # none, and none that a test could leave for others: writing there fails
        patch.setenv("DIAGNOSE_MEMORY", "/dev/null/memory.sqlite")
        if shared:
            _compile_once(home / "compiling")
        yield


def _compile_once(lock: Path) -> None:
    """Compile the catalog if it changed, unless another worker does: all begin with that."""
    from diagnose.catalog.load import load_catalog
    from diagnose.match.compile import compile_matcher

    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        compile_matcher(load_catalog())


def pytest_configure() -> None:
    """Signals as in a terminal: tests started by `nohup`, or by a script with `&`, ignore some.

    So would every command that a test starts and sends one to.
    """
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            is_interrupt = number == signal.SIGINT
            signal.signal(number, signal.default_int_handler if is_interrupt else signal.SIG_DFL)


def pytest_make_parametrize_id(val: object) -> str | None:
    """Long bytes give no id: packed ones may hold the time, and the workers must agree on ids."""
    return "bytes" if isinstance(val, bytes) and len(val) > 16 else None


def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: many tests wait for processes that they started."""
    from diagnose.runtime.command import cores  # not before coverage is measured

    return cores() + 1
