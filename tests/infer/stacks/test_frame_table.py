"""What frames tell, and in which order of precedence."""

from __future__ import annotations

import re
from typing import Any, get_args

import pytest

from diagnose.catalog.schema import Phase
from diagnose.formats import table
from diagnose.infer.events.exceptions import OP_OF_CALL
from diagnose.infer.stacks.frame_table import (
    BARE,
    RULES,
    State,
    is_helper,
    is_library,
    names,
    phase,
    read,
)
from diagnose.parse.stacks import Frame

PACKAGES = "/opt/conda/lib/python3.10/site-packages/"
ROWS = table.written(table.FRAMES)
LEVELS = [*dict.fromkeys(row["level"] for row in ROWS if "level" in row)]
C10D = "torch/distributed/distributed_c10d.py"


def frames(*told: str) -> list[Frame]:
    """`func@file:line` is Python, `func@lib` native; innermost first."""
    found = []
    for text in told:
        func, _, file = text.partition("@")
        path, _, line = file.rpartition(":")
        number = int(line) if path and line.isdecimal() else None
        found.append(Frame(func, path if number else file, number, number is None))
    return found


def state(*told: str) -> tuple[State, int] | None:
    decided = read(frames(*told))
    return (decided[0].state, decided[1]) if decided else None


def by_rows(frame: str) -> list[dict[str, Any]]:
    """The first row of each level that knows a frame, its phase, and whether it is of a helper."""
    (one,) = frames(frame)
    func, file = names(one)
    found = [
        row
        for row in ROWS
        if (row.get("native", False) == one.native and not (row.get("own") and is_library(one)))
        and re.fullmatch(row.get("func", ".*"), func)
        and re.fullmatch(rf"(?:.*/)?(?:{row.get('file', '.*')})", file)
    ]
    first = {(row.get("level"), "phase" in row, "helper" in row): row for row in found[::-1]}
    return [*first.values()]


@pytest.mark.parametrize(
    ("row", "sample"), [(row, sample) for row in ROWS for sample in row["samples"]]
)
def test_sample(row: dict[str, Any], sample: str) -> None:
    assert row in by_rows(sample)
    one = frames(sample)
    if "helper" in row:
        assert is_helper(one)
    elif "phase" in row:
        assert phase(one) == row["phase"]
    else:
        levels = {one["level"]: one for one in by_rows(sample) if "level" in one}
        first = next(levels[level] for level in LEVELS if level in levels)
        assert state(sample) == (first["state"], 0)


@pytest.mark.parametrize("frame", [one for row in ROWS for one in row.get("refused", ())])
def test_frames_that_tell_nothing(frame: str) -> None:
    assert state(frame) is None
    assert not is_helper(frames(frame))


def test_operations_are_those_of_calls() -> None:
    (rule,) = (rule for rule in RULES if "monitored_barrier" in rule.func and "c10d" in rule.file)
    assert set(rule.func.split("|")) == set(OP_OF_CALL) - {"_engine_run_backward"}


@pytest.mark.parametrize("prefix", [PACKAGES, "/usr/local/lib/python3.12/dist-packages/", ""])
def test_paths_of_all_tools_look_alike(prefix: str) -> None:
    assert state(f"all_reduce@{prefix}{C10D}:3") == ("collective_wait", 0)
    assert names(frames(f"f@{prefix}torch/a.py:3")[0]) == ("f", "torch/a.py")


def test_the_innermost_frame_with_a_meaning_decides() -> None:
    assert state(
        "select@selectors.py:415", "poll@multiprocessing/connection.py:257",
        "get@multiprocessing/queues.py:113", "_try_get_data@torch/utils/data/dataloader.py:1291",
        "evaluation_loop@transformers/trainer.py:9",
    ) == ("data_loading", 3)  # fmt: skip
    assert state(f"all_reduce@{C10D}:3", "save@torch/serialization.py:3") == ("collective_wait", 0)
    assert state("save@torch/serialization.py:3", f"all_reduce@{C10D}:3") == ("file_write", 0)
    assert state("ncclSocketAccept@libnccl.so.2", f"all_reduce@{C10D}:3") == ("comm_init", 0)


@pytest.mark.parametrize(
    ("inner", "outer", "expected"),
    [
        ("futex_wait@libc.so.6", "c10d::Work::wait@libtorch_cpu.so", "collective_wait"),
        ("clock_nanosleep@libc.so.6", "wait@torch/utils/file_baton.py:4", "lock"),
        ("read@libc.so.6", "_recv@multiprocessing/connection.py:3", "message_wait"),
        ("_recv@multiprocessing/connection.py:3", "get@multiprocessing/queues.py:3", "lock"),
        ("readinto@socket.py:706", "urlopen@urllib/request.py:216", "reply"),
        ("readinto@socket.py:706", "download_weights@/job/train.py:3", "download"),
        ("read@requests/models.py:1", "cached_file@huggingface_hub/utils.py:3", "download"),
        ("read@libc.so.6", "evaluate@/job/train.py:3", "file_read"),
        ("pthread_cond_wait@libc.so.6", "evaluate@/job/train.py:3", "evaluation"),
        ("forward@torch/nn/modules/linear.py:3", "evaluate@/job/train.py:3", "evaluation"),
        ("pthread_cond_wait@libc.so.6", "main@/job/train.py:3", "lock"),
    ],
)
def test_a_system_call_yields_to_what_it_is_for(inner: str, outer: str, expected: State) -> None:
    found = state(inner, outer)
    assert found is not None
    assert found[0] == expected


@pytest.mark.parametrize(
    "backward",
    ["_engine_run_backward@torch/autograd/graph.py:979", "backward@torch/autograd/__init__.py:347"],
)
def test_a_backward_pass_that_computes_waits_for_nobody(backward: str) -> None:
    assert state("pthread_cond_wait@libc.so.6", backward) == ("collective_wait", 1)
    assert state("at::native::mm@libtorch_cpu.so", backward) == ("python", 0)
    assert state("c10d::Reducer::finalize_backward@libtorch_cpu.so",
                 "at::native::mm@libtorch_cpu.so", backward) == ("collective_wait", 0)  # fmt: skip


@pytest.mark.parametrize(
    ("stack", "expected"),
    [
        (["_worker_loop@torch/utils/data/_utils/worker.py:374", "<module>@train.py:1"], True),
        (["sleep@x.so", "_invoke_run@torch/distributed/elastic/agent/server/api.py:9"], True),
        (["worker@multiprocess/pool.py:125"], True),
        (["_next_data@torch/utils/data/dataloader.py:3", "<module>@train.py:1"], False),
        (["_wrap@torch/multiprocessing/spawn.py:69", "run@multiprocessing/process.py:3"], False),
    ],
)
def test_processes_that_are_no_rank(stack: list[str], expected: bool) -> None:
    assert is_helper(frames(*stack)) is expected


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        ("step@train.py:41", False),
        ("step@/job/pkg/train.py:41", False),
        ("step@<ipython-input-3-abc>:4", False),
        ("wait@threading.py:327", True),
        ("wait@/usr/lib/python3.11/threading.py:327", True),
        ("train@transformers/trainer.py:3", True),
        (f"train@{PACKAGES}ours/loop.py:3", True),
        ("call@/tmp/torchinductor_root/ab/cd.py:3", True),
        ("forward@<eval_with_key>.12:3", True),
        ("all_reduce@/opt/pytorch/pytorch/torch/distributed/distributed_c10d.py:3", True),
        ("poll@libc.so.6", True),
    ],
)
def test_the_users_own_code(frame: str, expected: bool) -> None:
    assert is_library(frames(frame)[0]) is expected


@pytest.mark.parametrize(
    ("stack", "expected"),
    [
        (["all_gather@x.py:3", "evaluate@train.py:3", "train@train.py:9"], "evaluation"),
        (["all_reduce@x.py:3", "save_checkpoint@train.py:3", "train@train.py:9"], "checkpoint"),
        (["_sample@transformers/generation/utils.py:3", "generate@x.py:3"], "inference"),
        (["f@train.py:3", "_map_single@datasets/arrow_dataset.py:9"], "preprocessing"),
        (["get@x.py:3", "from_pretrained@transformers/modeling_utils.py:9"], "model_load"),
        ([f"init_process_group@{C10D}:3"], "init"),
        (["_verify@torch/x.py:3", "__init__@torch/nn/parallel/distributed.py:4"], "init"),
        (["_engine_run_backward@torch/autograd/graph.py:3"], "training"),
        (["wait@x.py:3", f"destroy_process_group@{C10D}:3"], "shutdown"),
        (["main@train.py:3"], None),
    ],
)
def test_phases(stack: list[str], expected: Phase | None) -> None:
    assert phase(frames(*stack)) == expected


def test_every_rule_and_phase_can_be_asked() -> None:
    assert {rule.level for rule in RULES} == set(range(-1, BARE + 1))
    assert {rule.phase for rule in RULES} - {None} <= set(get_args(Phase))
