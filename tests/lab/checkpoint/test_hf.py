"""What real torch, safetensors, transformers, PEFT, accelerate and Lightning write is whole.

Those of them that are not installed are passed over. `pytest -m lab tests/lab/checkpoint`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from diagnose.checkpoint.layouts.hooks import read_file
from diagnose.checkpoint.look import Looker
from diagnose.checkpoint.model import Checkpoint, judged
from diagnose.checkpoint.tree import Folder, Leaf, read_tree
from tests.checkpoint.founds import Family

ACCELERATE = Family("accelerate")
HF_MODEL = Family("Hugging Face model")
HF_TRAINER = Family("Hugging Face Trainer")

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.lab

WORKER = Path(__file__).with_name("worker_hf.py")
OFFLINE = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


def judge(path: Path, layout: Family) -> Checkpoint:
    tree = read_tree(str(path))
    assert isinstance(tree, Folder)
    found = layout.read(tree, Looker(verify=True))
    assert found is not None
    return judged(found)


def run(what: str, out: Path, ranks: int) -> None:
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    command = [sys.executable, *(torchrun if ranks > 1 else []), str(WORKER), what, str(out)]
    done = subprocess.run(
        command, env=os.environ | OFFLINE, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr


def model() -> dict[str, torch.Tensor]:
    return {f"layer{n}.weight": torch.randn(16, 16, dtype=torch.bfloat16) for n in range(4)}


def test_files_of_real_writers_in_a_folder_of_the_trainer(tmp_path: Path) -> None:
    """With real files each one that is gone, or cut off anywhere, is named."""
    safetensors = pytest.importorskip("safetensors.torch")
    path = tmp_path / "checkpoint-30"
    path.mkdir()
    weights = model()
    names = [f"model-{number:05d}-of-00002.safetensors" for number in (1, 2)]
    places = {tensor: names[n % 2] for n, tensor in enumerate(weights)}
    for name in names:
        held = {tensor: data for tensor, data in weights.items() if places[tensor] == name}
        safetensors.save_file(held, path / name, metadata={"format": "pt"})
    (path / "config.json").write_text(json.dumps({"architectures": ["X"]}))
    index = {"metadata": {"total_size": 4 * 512}, "weight_map": places}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    module = torch.nn.Linear(8, 8)
    optimizer = torch.optim.AdamW(module.parameters())
    module(torch.ones(1, 8)).sum().backward()
    optimizer.step()
    torch.save(optimizer.state_dict(), path / "optimizer.pt")
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    torch.save(schedule.state_dict(), path / "scheduler.pt")
    for rank in range(2):
        torch.save({"cpu": torch.get_rng_state()}, path / f"rng_state_{rank}.pth")
    (path / "trainer_state.json").write_text(json.dumps({"global_step": 30}))
    checkpoint = judge(path, HF_TRAINER)
    assert (checkpoint.state, checkpoint.reasons, checkpoint.notes) == ("whole", [], [])
    assert (checkpoint.ranks, checkpoint.step) == (2, 30)
    for file in list(path.iterdir()):
        data = file.read_bytes()
        for size in (None, 0, *(len(data) * n // 8 for n in range(1, 8)), len(data) - 1):
            if size is None:
                file.unlink()
            else:
                file.write_bytes(data[:size])
            checkpoint = judge(path, HF_TRAINER)
            assert checkpoint.state == "partial", (file.name, size)
            assert any(reason.startswith(file.name) for reason in checkpoint.reasons)
        file.write_bytes(data)


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_real_trainer(tmp_path: Path, ranks: int) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    run("trainer", tmp_path, ranks)
    for step in (2, 4):
        checkpoint = judge(tmp_path / f"checkpoint-{step}", HF_TRAINER)
        assert (checkpoint.state, checkpoint.reasons, checkpoint.notes) == ("whole", [], [])
        assert (checkpoint.ranks, checkpoint.step) == (ranks, step)
    assert judge(tmp_path / "final", HF_MODEL).state == "whole"
    last = "rng_state.pth" if ranks == 1 else f"rng_state_{ranks - 1}.pth"
    (tmp_path / "checkpoint-4" / last).unlink()
    checkpoint = judge(tmp_path / "checkpoint-4", HF_TRAINER)
    assert checkpoint.state == "partial"
    assert [reason.partition(":")[0] for reason in checkpoint.reasons] == [last]


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_real_accelerate(tmp_path: Path, ranks: int) -> None:
    pytest.importorskip("accelerate")
    run("accelerate", tmp_path, ranks)
    for step in (2, 4):
        checkpoint = judge(tmp_path / f"step_{step}", ACCELERATE)
        assert (checkpoint.state, checkpoint.reasons, checkpoint.notes) == ("whole", [], [])
        assert (checkpoint.ranks, checkpoint.step, checkpoint.files) == (ranks, step, 3 + ranks)


@pytest.mark.parametrize("tied", [False, True])
def test_the_real_save_pretrained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tied: bool
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=3,
        num_attention_heads=2, num_key_value_heads=2, tie_word_embeddings=tied,
    )  # fmt: skip
    llama = transformers.LlamaForCausalLM(config)
    llama.save_pretrained(tmp_path / "sharded", max_shard_size="20KB")
    llama.save_pretrained(tmp_path / "single")
    for name, least in (("sharded", 6), ("single", 3)):
        checkpoint = judge(tmp_path / name, HF_MODEL)
        assert (checkpoint.state, checkpoint.reasons, checkpoint.notes) == ("whole", [], [])
        assert checkpoint.files >= least


def test_the_real_peft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    peft = pytest.importorskip("peft")
    module = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    model = peft.get_peft_model(module, peft.LoraConfig(r=2, target_modules=["0"]))
    model.add_adapter("second", peft.LoraConfig(r=4, target_modules=["1"]))
    model.save_pretrained(tmp_path)
    checkpoint = judge(tmp_path, HF_MODEL)
    assert (checkpoint.state, checkpoint.framework, checkpoint.files) == ("whole", "peft", 4)


def test_the_real_lightning(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning")

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
            return self.layer(batch).sum()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters())

    saves = lightning.pytorch.callbacks.ModelCheckpoint(
        tmp_path, every_n_train_steps=3, save_top_k=-1, save_last=True
    )
    trainer = lightning.Trainer(
        max_steps=6, accelerator="cpu", logger=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[saves],
    )  # fmt: skip
    trainer.fit(Module(), torch.utils.data.DataLoader(torch.randn(32, 4), batch_size=4))
    tree = read_tree(str(tmp_path))
    assert not isinstance(tree, Leaf)
    found = {name: read_file(leaf, Looker(verify=True)) for name, leaf in tree.files.items()}
    judgements = {name: judged(one) for name, one in found.items() if one}
    assert {name: (one.state, one.step) for name, one in judgements.items()} == {
        "epoch=0-step=3.ckpt": ("whole", 3),
        "epoch=0-step=6.ckpt": ("whole", 6),
        "last.ckpt": ("whole", 6),
    }
