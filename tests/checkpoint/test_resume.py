from dataclasses import replace

import pytest

from diagnose.checkpoint.model import Checkpoint, Resume, how, newest, resume

ONE = Checkpoint(
    "/out/checkpoint-100", "HF Trainer", 100, 8, "whole", [], 9, 9, 1.0, "transformers"
)


def at(step: int, state: str = "whole", **other: object) -> Checkpoint:
    changed = {"path": f"/out/checkpoint-{step}", "step": step, "state": state, "written": step}
    return replace(ONE, **(changed | other))


def test_the_last_whole_one() -> None:
    back = resume([at(100), at(200), at(300, "partial")])
    assert back == Resume("/out/checkpoint-200", 200, *how(at(200)))


def test_the_run_written_to_last_wins_over_a_higher_step() -> None:
    old = at(900, path="/old/checkpoint-900", written=1.0)
    assert resume([old, at(100, written=5.0)]).path == "/out/checkpoint-100"  # type: ignore[union-attr]


def test_another_run_when_none_of_the_last_one_is_whole() -> None:
    old = at(900, path="/old/checkpoint-900", written=1.0)
    assert resume([old, at(100, "corrupt", written=5.0)]).path == old.path  # type: ignore[union-attr]


def test_weights_alone_are_the_last_resort() -> None:
    weights = at(900, path="/out/final", framework="", written=9.0)
    assert resume([weights, at(100)]).step == 100  # type: ignore[union-attr]
    assert resume([weights]).path == "/out/final"  # type: ignore[union-attr]


def test_none_is_whole() -> None:
    assert resume([at(100, "partial"), at(200, "unknown")]) is None
    assert resume([]) is None


def test_the_newest_in_any_state() -> None:
    assert newest([at(100), at(300, "partial"), at(200)]).step == 300  # type: ignore[union-attr]
    assert newest([]) is None


@pytest.mark.parametrize(
    ("framework", "path", "kind", "expected"),
    [
        (
            "deepspeed",
            "/o/global_step5",
            "python",
            "model_engine.load_checkpoint('/o', tag='global_step5')",
        ),
        ("megatron", "/o/iter_0000005", "setting", "--load /o --ckpt-step 5"),
        ("lightning", "/o/last.ckpt", "python", "trainer.fit(model, ckpt_path='/o/last.ckpt')"),
        ("llama2-accessory", "/o/epoch0 1", "setting", "--resume '/o/epoch0 1'"),
        (
            "",
            "/o/model",
            "python",
            "from_pretrained('/o/model')  # weights only: the optimizer starts from scratch",
        ),
    ],
)
def test_each_framework_is_told_in_its_words(
    framework: str, path: str, kind: str, expected: str
) -> None:
    assert how(at(5, framework=framework, path=path)) == (expected, kind)


def test_a_lone_file_is_loaded_without_running_code_in_it() -> None:
    one = at(5, framework="", path="/o/a.pt", files=1)
    text = "torch.load('/o/a.pt', map_location='cpu', mmap=True, weights_only=True)"
    assert how(one) == (text, "python")
