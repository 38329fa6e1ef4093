"""What a cause accounts for."""

import pytest

from diagnose.infer.rules.base import explains

from ..rows import hypothesis as one


@pytest.mark.parametrize(
    ("cause", "other", "answer"),
    [
        ("crash.gpu_oom", "desync.missing_rank", True),  # a dead rank explains every wait
        ("hw.gpu", "crash.cuda_error", True),
        ("net.shm", "data.loader", True),
        ("crash.host_oom", "crash.killed", True),
        ("crash.cuda_error", "hw.gpu", False),
        ("desync.missing_rank", "crash.gpu_oom", False),
        ("crash.gpu_oom", "crash.gpu_oom", False),
    ],
)
def test_what_classes_explain(cause: str, other: str, answer: bool) -> None:
    assert explains(one(cause), one(other)) is answer


def test_an_entry_may_explain_more() -> None:
    cause = one("env.config", explains=["hw.*", "t.special"])
    assert explains(cause, one("hw.node"))
    assert explains(cause, one("net.p2p", signature="t.special"))
    assert not explains(cause, one("net.p2p", signature="t.other"))
