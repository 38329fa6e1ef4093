"""What trainers print of their steps, in the forms that these have.

A printer belongs to one rank. Times are in seconds; the forms follow the sources of the programs:
Megatron's timers and its StragglerDetector, DeepSpeed's wall_clock_breakdown, the ImageNet example
of PyTorch, MMEngine, Lightning and tqdm, torchtitan, and scripts of users.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from datetime import datetime

from benchmarks.hangbench.slow.plan import Plan

Times = Mapping[str, float]

_MEGATRON = {
    "batch-generator": "data",
    "forward-compute": "forward",
    "backward-compute": "backward",
    "all-grads-sync": "allreduce",
    "optimizer": "step",
}
_GATHERING = ("megatron-all", "megatron-straggler", "megatron-minmax")
_ONE_SPEAKS = ("hf", "lightning")


class Printer:
    """Prints what one rank of a run has to say."""

    def __init__(self, rank: int, plan: Plan) -> None:
        self.rank, self.plan = rank, plan
        self.began = time.time()
        self.loss = 9.0

    # ------------------------------------------------------------------------------ the job

    def begin(self) -> None:
        """The training begins."""
        plan = self.plan
        if plan.style in _ONE_SPEAKS and self.rank:
            return
        if plan.style == "hf":
            self._out(f"***** Running training *****\n  Total optimization steps = {plan.steps}")
        elif plan.style in _GATHERING:
            if self.rank == 0:
                self._out(f"training ... world size: {plan.world}")
        else:
            self._log(f"rank {self.rank} of world size {plan.world}: training {plan.steps} steps")

    def end(self) -> None:
        """The training ended."""
        if self.plan.style == "lightning" and self.rank == 0:
            self._out(f"`Trainer.fit` stopped: `max_steps={self.plan.steps}` reached.")
        elif self.rank == 0:
            self._log("Training finished")

    def evaluation(self, step: int, batches: int) -> None:
        """An evaluation begins."""
        if self.rank == 0:
            if self.plan.style == "hf":
                self._out(f"***** Running Evaluation *****\n  Num examples = {batches}")
            else:
                self._log(f"Evaluating on {batches} samples")

    def saving(self, step: int) -> None:
        """A checkpoint is begun."""
        if self.rank == 0:
            self._log(f"Saving checkpoint to ckpt/step_{step}.pt")

    def saved(self, step: int) -> None:
        """A checkpoint is written."""
        if self.rank == 0:
            self._log(f"Saved checkpoint to ckpt/step_{step}.pt")

    def ready(self, step: int) -> None:
        """Gradients are there, and nothing is exchanged yet."""
        if self.plan.style == "stamps":
            self._log(f"step {step}/{self.plan.steps} gradients ready")

    def line(self, step: int, spent: Times, rows: Sequence[Times]) -> None:
        """The line, or the lines, of a step."""
        self.loss = 9.0 - 4.0 * step / self.plan.steps
        getattr(self, "_" + self.plan.style.replace("-", "_"))(step, spent, rows)

    # ------------------------------------------------------------------------------ its steps

    def _iteration(self, step: int, spent: Times) -> None:
        if self.rank != self.plan.world - 1:
            return
        now = datetime.now().strftime("%Y-%m-%d %H:%M:%S")
        self._out(
            f" [{now}] iteration {step:8d}/{self.plan.steps:8d} | consumed samples: "
            f"{step * 8:12d} | elapsed time per iteration (ms): {spent['total'] * 1e3:.1f} "
            f"| learning rate: 1.000000E-04 | global batch size: {8:5d} | lm loss: {self.loss:.6E} "
            "| loss scale: 1.0 | grad norm: 1.234 | number of skipped iterations:   0 "
            "| number of nan iterations:   0 |"
        )

    def _megatron_all(self, step: int, spent: Times, rows: Sequence[Times]) -> None:
        self._iteration(step, spent)
        if self.rank == self.plan.world - 1:
            text = "times across ranks (ms):"
            for timer, phase in _MEGATRON.items():
                text += f"\n  {timer}:"
                for rank, row in enumerate(rows):
                    text += f"\n     rank {rank:2d}: {row[phase] * 1e3:.2f}"
            self._out(text)

    def _megatron_minmax(self, step: int, spent: Times, rows: Sequence[Times]) -> None:
        self._iteration(step, spent)
        if self.rank == self.plan.world - 1:
            text = "(min, max) time across ranks (ms):"
            for timer, phase in _MEGATRON.items():
                own = [row[phase] * 1e3 for row in rows]
                text += f"\n    {(timer + ' ').ljust(48, '.')}: ({min(own):.2f}, {max(own):.2f})"
            self._out(text)

    def _megatron_straggler(self, step: int, spent: Times, rows: Sequence[Times]) -> None:
        self._iteration(step, spent)
        if self.rank or step % (5 * self.plan.every):
            return
        trip = [(row["forward"] * 1e3, rank) for rank, row in enumerate(rows)]
        data = [(row["data"] * 1e3, rank) for rank, row in enumerate(rows)]
        flops = [(1.2e4 / took, rank) for took, rank in trip]
        now = datetime.now().strftime("[%Y-%m-%d %H:%M:%S]")
        clock = self.plan.world
        self._out(
            f"INFO:megatron.core.utils:{now} "
            f"| MnRtt/Rnk: {min(trip)[0]:.2f}ms/{min(trip)[1]} "
            f"| MxRtt/Rnk: {max(trip)[0]:.2f}ms/{max(trip)[1]} "
            f"| MnPwr/Rnk: 601796.00W/{step % clock} | MxPwr/Rnk: 683801.00W/{(step + 1) % clock} "
            f"| MnTmp/Rnk: 52.00C/{step % clock} | MxTmp/Rnk: 65.00C/{(step + 2) % clock} "
            f"| MnUtl/Rnk: 97.00%/{step % clock} | MxUtl/Rnk: 100.00%/{(step + 1) % clock} "
            f"| MnClk/Rnk: 1950.00MHz/{step % clock} | MxClk/Rnk: 1980.00MHz/{(step + 3) % clock} "
            f"| MnDRtt/Rnk: {min(data)[0]:.2f}ms/{min(data)[1]} "
            f"| MxDRtt/Rnk: {max(data)[0]:.2f}ms/{max(data)[1]} "
            f"| MnEtpt/Rnk: {min(flops)[0]:.2f}TF/{min(flops)[1]} "
            f"| MxEtpt/Rnk: {max(flops)[0]:.2f}TF/{max(flops)[1]}"
        )

    def _deepspeed(self, step: int, spent: Times, rows: Sequence[Times]) -> None:
        now = f"{datetime.now():%Y-%m-%d %H:%M:%S},{datetime.now().microsecond // 1000:03d}"
        head = f"[{now}] [INFO] [logging.py:128:log_dist] [Rank {self.rank}]"
        if self.rank == 0 and step % (5 * self.plan.every) == 0:
            self._out(f"{head} step={step}, skipped=0, lr=[0.0001], mom=[[0.9, 0.999]]")
        ms = {name: took * 1e3 for name, took in spent.items()}
        both = ms["backward"] + ms["allreduce"]
        self._out(
            f"{head} time (ms) | fwd_microstep: {ms['forward']:.2f} | bwd_microstep: {both:.2f} "
            f"| bwd_inner_microstep: {ms['backward']:.2f} "
            f"| bwd_allreduce_microstep: {ms['allreduce']:.2f} | step_microstep: {ms['step']:.2f}"
        )
        self._out(
            f"{head} time (ms) | fwd: {ms['forward']:.2f} | bwd: {both:.2f} "
            f"| bwd_inner: {ms['backward']:.2f} | bwd_allreduce: {ms['allreduce']:.2f} "
            f"| step: {ms['step']:.2f}"
        )

    def _kv(self, step: int, spent: Times, rows: Sequence[Times]) -> None:
        self._log(
            f"step {step}/{self.plan.steps} loss={self.loss:.4f} data_time={spent['data']:.4f} "
            f"fwd={spent['forward']:.4f} bwd={spent['backward']:.4f} send={spent['send']:.4f} "
            f"allreduce={spent['allreduce']:.4f} optim={spent['step']:.4f} "
            f"step_time={spent['total']:.4f}"
        )

    def _words(self, step: int, spent: Times, rows: Sequence[Times]) -> None:
        ms = {name: took * 1e3 for name, took in spent.items()}
        self._log(
            f"step {step} | loss {self.loss:.3f} | data {ms['data']:.1f}ms | forward "
            f"{ms['forward']:.1f}ms | backward {ms['backward']:.1f}ms | send {ms['send']:.1f}ms "
            f"| all_reduce {ms['allreduce']:.1f}ms | optimizer {ms['step']:.1f}ms "
            f"| total {ms['total']:.1f}ms"
        )

    def _imagenet(self, step: int, spent: Times, rows: Sequence[Times]) -> None:
        self._out(
            f"Epoch: [0][{step:3d}/{self.plan.steps}]\tTime {spent['total']:6.3f} "
            f"({spent['total']:6.3f})\tData {spent['data']:6.3f} ({spent['data']:6.3f})\t"
            f"Loss {self.loss:.4e} ({self.loss:.4e})\tAcc@1   0.00 (  0.10)\tAcc@5   0.78 (  0.52)"
        )

    def _mmengine(self, step: int, spent: Times, rows: Sequence[Times]) -> None:
        self._out(
            f"{datetime.now():%Y/%m/%d %H:%M:%S} - mmengine - INFO - Epoch(train)  "
            f"[1][{step:3d}/{self.plan.steps}]  lr: 1.0000e-02  eta: 0:01:00  "
            f"time: {spent['total']:.4f}  data_time: {spent['data']:.4f}  memory: 4321  "
            f"loss: {self.loss:.4f}"
        )

    def _stamps(self, step: int, spent: Times, rows: Sequence[Times]) -> None:
        self._log(f"step {step}/{self.plan.steps} done, loss {self.loss:.4f}")

    def _dumps(self, step: int, spent: Times, rows: Sequence[Times]) -> None:
        if self.rank == 0:
            self._log(f"step {step}/{self.plan.steps} loss {self.loss:.4f}")

    def _clocks(self, step: int, spent: Times, rows: Sequence[Times]) -> None:
        self._log(
            f"step {step}/{self.plan.steps} loss {self.loss:.4f} step_time {spent['total']:.3f}s"
        )

    def _bar(self, step: int, spent: Times, name: str, tail: str) -> None:
        if self.rank:
            return
        took = time.time() - self.began
        speed = (
            f"{1 / spent['total']:5.2f}it/s" if spent["total"] < 1 else f"{spent['total']:5.2f}s/it"
        )
        left = (self.plan.steps - step) * spent["total"]
        share = step / self.plan.steps
        bar = ("█" * int(10 * share)).ljust(10)
        self._write(
            f"{name}{share:4.0%}|{bar}| {step}/{self.plan.steps} [{int(took) // 60:02d}:"
            f"{int(took) % 60:02d}<{int(left) // 60:02d}:{int(left) % 60:02d}, {speed}{tail}]\r"
        )

    def _hf(self, step: int, spent: Times, rows: Sequence[Times]) -> None:
        self._bar(step, spent, "", "")
        if self.rank == 0 and step % 10 == 0:
            self._out(
                f"\n{{'loss': {self.loss:.4f}, 'grad_norm': 1.2, 'learning_rate': 5e-05, "
                f"'epoch': {step / self.plan.steps:.2f}}}"
            )

    def _lightning(self, step: int, spent: Times, rows: Sequence[Times]) -> None:
        tail = f", v_num=0, train_loss={self.loss:.3f}, train_step_timing in s={spent['total']:.4f}"
        self._bar(step, spent, "Epoch 0: ", tail)

    def _torchtitan(self, step: int, spent: Times, rows: Sequence[Times]) -> None:
        speed = int(8192 / spent["total"])
        now = f"{datetime.now():%Y-%m-%d %H:%M:%S},{datetime.now().microsecond // 1000:03d}"
        self._out(
            f"[titan] {now} - root - INFO - step: {step:2d}  loss: {self.loss:8.5f}  grad_norm: "
            f" 1.2345  memory:  1.94GiB(2.04%)  tps: {speed:,}  tflops: 0.42  mfu: 0.13%"
        )

    # ------------------------------------------------------------------------------ out

    def _log(self, text: str) -> None:
        now = datetime.now()
        stamp = f"{now:%Y-%m-%d %H:%M:%S},{now.microsecond // 1000:03d}"
        self._out(f"{stamp} [rank{self.rank}] INFO train: {text}")

    def _out(self, text: str) -> None:
        """Lines; on a console for all, each after torchrun's prefix."""
        prefix = "" if self.plan.tee else f"[default{self.rank}]:"
        self._write("".join(f"{prefix}{line}\n" for line in text.split("\n")))

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()
