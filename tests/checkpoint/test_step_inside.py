"""Which step a pickle claims is read without unpickling, and only where there is no doubt."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.checkpoint.contents import MAX_STEP_BYTES, step_in
from tests.checkpoint.leaves import look
from tests.checkpoint.make.base import Tensor, pickle_file, torch_file

LAYERS = {f"layers.{place}.weight": list(range(place)) for place in range(50)}


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("number", [0, 1, 255, 256, 65_535, 65_536, 2**31 - 1, 2**31, 2**40])
@pytest.mark.parametrize("key", ["global_step", "global_steps", "iteration"])
def test_steps_of_any_size(key: str, number: int, protocol: int) -> None:
    data = pickle.dumps({"module": LAYERS, key: number, "epoch": 3}, protocol)
    assert step_in(data, "mp_rank_00_model_states.pt") == number


@pytest.mark.parametrize(
    ("content", "step"),
    [
        ({"epoch": 3, "global_steps_skipped": 4, "best_global_step": 5}, None),
        ({"global_step": -1}, None),
        ({"global_step": 2**60}, None),
        ({"global_step": "500"}, None),
        ({"global_step": 5.0}, None),
        ({"global_step": True}, None),
        ({"global_step": None, "iteration": 7}, 7),
        ({"global_step": 500, "global_steps": 500}, 500),
        ({"global_step": 500, "global_steps": 499}, None),
        ({"state": {"global_step": 500}}, 500),
        ({"state": {"global_step": 400}, "global_step": 500}, 500),
        ({"a": {"global_step": 400}, "b": {"global_step": 500}}, None),
        ({"args": {"iteration": 0}, "iteration": 500}, 500),
        ({"args": {"iteration": 400}}, None),
        ([{"iteration": 400}], None),
        (OrderedDict(iteration=500), 500),
        (["iteration", 5], None),
        ("global_step", None),
        ({"last_epoch": 500}, None),
        (None, None),
    ],
)
def test_only_what_is_beyond_doubt(content: Any, step: int | None) -> None:
    for protocol in (2, 4):
        assert step_in(pickle.dumps(content, protocol), "state.pt") == step


def test_last_epoch_is_a_step_for_schedulers_only() -> None:
    data = pickle.dumps({"base_lrs": [0.1], "last_epoch": 500, "_step_count": 501})
    assert step_in(data, "scheduler.pt") == 500
    assert step_in(data, "scheduler_1.bin") == 500
    assert step_in(data, "optimizer.pt") is None


def test_keys_behind_the_limit_are_not_seen() -> None:
    data = pickle.dumps({"model": b"x" * MAX_STEP_BYTES, "global_step": 500})
    assert step_in(data, "state.pt") is None


def test_code_in_a_pickle_is_not_run(tmp_path: Path) -> None:
    class Touch:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "ran",))

    data = pickle.dumps({"iteration": 500, "evil": Touch()})
    assert step_in(data, "state.pt") == 500
    assert list(tmp_path.iterdir()) == []


def test_files_tell_their_step() -> None:
    content = {"module": {"w": Tensor((3,))}, "iteration": 500}
    assert look("a.pt", torch_file(content=content)).step == 500
    assert look("scheduler.pt", torch_file(content={"last_epoch": 7})).step == 7
    assert look("a.pkl", pickle_file({"global_step": 9})).step == 9


PLAIN = st.recursive(
    st.none() | st.integers() | st.sampled_from(["iteration", "global_step", "x"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["iteration", "global_step", "a"]), inner)
        | st.tuples(inner, inner)
    ),
)


@given(PLAIN, st.integers(2, 5), st.binary(max_size=8), st.integers(0, 200))
def test_it_never_raises(content: Any, protocol: int, noise: bytes, at: int) -> None:
    data = pickle.dumps(content, protocol)
    step_in(data, "scheduler.pt")
    step_in(data[:at] + noise + data[at:], "scheduler.pt")
