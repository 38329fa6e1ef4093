"""A path that cannot be written has a class of its own, whatever was being written."""

import pytest

import diagnose

_RAISED = """[rank1]: Traceback (most recent call last):
[rank1]:   File "/app/train.py", line 12, in main
[rank1]:     write(state)
[rank1]: {}
"""


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        (
            "OSError: [Errno 28] No space left on device: '/data/ckpt/step_10/model.pt'",
            "env.storage",
        ),
        ("OSError: [Errno 122] Disk quota exceeded: '/home/u/out/optimizer.pt'", "env.storage"),
        ("OSError: [Errno 30] Read-only file system: '/opt/model/index.json'", "env.storage"),
        ("PermissionError: [Errno 13] Permission denied: '/data/out'", "env.storage"),
        ("PermissionError: [Errno 13] Permission denied: '/dev/kfd'", "env.config"),
        ("OSError: [Errno 28] No space left on device: '/dev/shm/psm_1a2b'", "net.shm"),
    ],
)
def test_what_refused_the_write_is_the_cause(line: str, cause: str) -> None:
    found = diagnose.diagnose(diagnose.load_text(_RAISED.format(line)))
    assert (found.root_cause.cause, found.culprits.ranks) == (cause, [1])
