"""What training programs print: how a line of theirs looks, when they start, go on and end.

The forms are those of the programs named (their loggers and progress lines); all texts and
numbers are made. `Program.write` gives a message the look of its logger.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from benchmarks.hangbench.words.job import Job, Line, Mark

# How much of a time its lines show: date and time, without the year, or nothing.
Stamps = Literal["full", "yearless", "none"]
Family = Literal["torch", "jax", "keras", "mpi", "ray"]
Write = Callable[[Job, int, datetime, str], str]
Step = Callable[[Job, int], str]


@dataclass(frozen=True, slots=True)
class Program:
    """A kind of program.

    write: a message of a rank at a time, in the form of its logger; step: the message of a
    progress line. every_rank: usual programs of this kind let each rank print (else the first, or
    the last one where `last` is set). names_rank: its lines hold the global rank.
    bar: its progress is a bar redrawn in place, whose elapsed time is `mm:ss`.
    err: its log goes to standard error. prints: it calls `print` without a flush, so that its
    output is held back in blocks where standard output is no terminal; a logger writes each line.
    """

    name: str
    family: Family
    stamps: Stamps
    write: Write
    step: Step
    opening: tuple[str, ...]
    closing: tuple[str, ...]
    every_rank: bool = False
    last: bool = False
    names_rank: bool = False
    bar: bool = False
    err: bool = False
    prints: bool = False


# ---------------------------------------------------------------- loggers


def _plain(job: Job, rank: int, now: datetime, text: str) -> str:
    return text


def _logging(job: Job, rank: int, now: datetime, text: str) -> str:
    return f"{now:%Y-%m-%d %H:%M:%S},{now.microsecond // 1000:03d} INFO {text}"


def _logging_named(job: Job, rank: int, now: datetime, text: str) -> str:
    return (
        f"{now:%Y-%m-%d %H:%M:%S},{now.microsecond // 1000:03d} - {job.script[:-3]} - INFO - {text}"
    )


def _ranked(job: Job, rank: int, now: datetime, text: str) -> str:
    return f"[{now:%Y-%m-%d %H:%M:%S}] [rank {rank}] {text}"


def _ranked_bare(job: Job, rank: int, now: datetime, text: str) -> str:
    return f"[Rank {rank}] {text}"


def _iso(job: Job, rank: int, now: datetime, text: str) -> str:
    return f"{now:%Y-%m-%dT%H:%M:%S}Z {job.host(rank)} INFO rank={rank} {text}"


def _loguru(job: Job, rank: int, now: datetime, text: str) -> str:
    stamp = f"{now:%Y-%m-%d %H:%M:%S}.{now.microsecond // 1000:03d}"
    return f"{stamp} | INFO     | __main__:train:{118 + len(job.script)} - {text}"


def _titan(job: Job, rank: int, now: datetime, text: str) -> str:
    stamp = f"{now:%Y-%m-%d %H:%M:%S},{now.microsecond // 1000:03d}"
    return f"[titan] {stamp} - root - INFO - {text}"


def _deepspeed(job: Job, rank: int, now: datetime, text: str) -> str:
    stamp = f"{now:%Y-%m-%d %H:%M:%S},{now.microsecond // 1000:03d}"
    return f"[{stamp}] [INFO] [logging.py:107:log_dist] [Rank {rank}] {text}"


def _accelerate(job: Job, rank: int, now: datetime, text: str) -> str:
    return f"{now:%m/%d/%Y %H:%M:%S} - INFO - __main__ - {text}"


def _fairseq(job: Job, rank: int, now: datetime, text: str) -> str:
    return f"{now:%Y-%m-%d %H:%M:%S} | INFO | {text}"


def _mmengine(job: Job, rank: int, now: datetime, text: str) -> str:
    return f"{now:%m/%d %H:%M:%S} - mmengine - INFO - {text}"


def _mmcv(job: Job, rank: int, now: datetime, text: str) -> str:
    return f"{now:%Y-%m-%d %H:%M:%S},{now.microsecond // 1000:03d} - mmdet - INFO - {text}"


def _detectron(job: Job, rank: int, now: datetime, text: str) -> str:
    return f"[{now:%m/%d %H:%M:%S} d2.utils.events]: {text}"


def _nemo(job: Job, rank: int, now: datetime, text: str) -> str:
    return f"[NeMo I {now:%Y-%m-%d %H:%M:%S} nemo_logging:393] {text}"


def _absl(job: Job, rank: int, now: datetime, text: str) -> str:
    return (
        f"I{now:%m%d %H:%M:%S}.{now.microsecond:06d} {139_000_000_000_000 + job.pids[rank]}"
        f" train.py:{211 + len(job.name)}] {text}"
    )


def _olmo(job: Job, rank: int, now: datetime, text: str) -> str:
    stamp = f"{now:%Y-%m-%d %H:%M:%S}.{now.microsecond // 1000:03d}"
    return f"{stamp}\t{job.host(rank)}:{job.local(rank)}\tolmo_core.train\tINFO\t{text}"


def _factory(job: Job, rank: int, now: datetime, text: str) -> str:
    return f"[INFO|{now:%Y-%m-%d %H:%M:%S}] llamafactory.train.callbacks:143 >> {text}"


def _megatron(job: Job, rank: int, now: datetime, text: str) -> str:
    return f" [{now:%Y-%m-%d %H:%M:%S}.{now.microsecond:06d}] {text}"


def _json(job: Job, rank: int, now: datetime, text: str) -> str:
    return json.dumps(
        {
            "ts": f"{now:%Y-%m-%dT%H:%M:%S}.{now.microsecond // 1000:03d}Z",
            "level": "INFO",
            "rank": rank,
            "logger": job.name,
            "message": text,
        }
    )


def _json_ecs(job: Job, rank: int, now: datetime, text: str) -> str:
    return json.dumps(
        {
            "@timestamp": f"{now:%Y-%m-%dT%H:%M:%S}.{now.microsecond // 1000:03d}Z",
            "log.level": "info",
            "message": text,
            "host.name": job.host(rank),
            "labels": {"rank": rank, "world_size": job.world},
        }
    )


# ---------------------------------------------------------------- progress


def _rate(job: Job) -> float:
    return job.every / job.interval * job.rng.uniform(0.93, 1.07)


def _clock_text(seconds: float) -> str:
    whole = int(seconds)
    hours, rest = divmod(whole, 3600)
    text = f"{rest // 60:02d}:{rest % 60:02d}"
    return f"{hours}:{text}" if hours else text


def bar_text(job: Job, step: int, elapsed: float, *, head: str = "", tail: str = "") -> str:
    """A tqdm bar at `step` of all steps, `elapsed` seconds after its start."""
    share = step / job.total
    eighths = int(share * 80)
    blocks = "█" * (eighths // 8) + ("", *"▏▎▍▌▋▊▉")[eighths % 8]
    rate = _rate(job)
    speed = f"{rate:.2f}it/s" if rate >= 1 else f"{1 / rate:.2f}s/it"
    left = _clock_text((job.total - step) / rate)
    return (
        f"{head}{share:4.0%}|{blocks:<10}| {step}/{job.total}"
        f" [{_clock_text(elapsed)}<{left}, {speed}{tail}]"
    )


def _loss_line(job: Job, step: int) -> str:
    return f"step {step} loss {job.loss(step):.4f}"


def _loss_of_total(job: Job, step: int) -> str:
    return f"step {step}/{job.total} | loss {job.loss(step):.4f} | lr {2e-4 * _left(job, step):.3e}"


def _left(job: Job, step: int) -> float:
    return max(0.01, 1 - step / job.total)


def _epoch_step(job: Job, step: int) -> str:
    size = -(-job.total // 3)
    epoch, inner = divmod(step - 1, size)
    return f"Epoch [{epoch + 1}/3], Step [{inner + 1}/{size}], Loss: {job.loss(step):.4f}"


def _nanogpt(job: Job, step: int) -> str:
    ms = 1000 * job.interval / job.every * job.rng.uniform(0.97, 1.03)
    return f"iter {step}: loss {job.loss(step):.4f}, time {ms:.2f}ms, mfu {38 + step % 3:.2f}%"


def _pipes(job: Job, step: int) -> str:
    return (
        f"step {step:5d} | loss: {job.loss(step):.6f} | lr 6.0000e-04 | norm: "
        f"{job.norm(step, 0.2, 1.4):.4f} | dt: {1000 / _rate(job):.2f}ms | tok/sec: "
        f"{524288 * _rate(job):.2f}"
    )


def _mnist(job: Job, step: int) -> str:
    seen, all_of_it = step * 64, job.total * 64
    return (
        f"Train Epoch: 1 [{seen}/{all_of_it} ({100 * step / job.total:.0f}%)]"
        f"\tLoss: {job.loss(step):.6f}"
    )


def _trainer(job: Job, step: int) -> str:
    return str(
        {
            "loss": round(job.loss(step), 4),
            "grad_norm": round(job.norm(step, 0.3, 2.5), 6),
            "learning_rate": 2e-5 * round(_left(job, step), 6),
            "epoch": round(3 * step / job.total, 2),
        }
    )


def _trainer5(job: Job, step: int) -> str:
    return str(
        {
            "loss": f"{job.loss(step):.4g}",
            "grad_norm": f"{job.norm(step, 0.3, 2.5):.4g}",
            "learning_rate": f"{2e-5 * _left(job, step):.4g}",
            "epoch": f"{3 * step / job.total:.4g}",
        }
    )


def _megatron_step(job: Job, step: int) -> str:
    """Megatron's line of a step, which leaves out a loss that is NaN and counts it."""
    before = (
        f"iteration {step:8d}/{job.total:8d} | consumed samples: {step * 256:12d} | elapsed time "
        f"per iteration (ms): {1000 / _rate(job):.1f} | throughput per GPU (TFLOP/s/GPU): "
        f"{job.rng.uniform(380, 420):.1f} | learning rate: {3e-4 * _left(job, step):.6E} | global "
        f"batch size:   256 | "
    )
    loss = job.loss(step)
    shown = f"lm loss: {loss:.6E} | " if loss > 0 else ""
    return (
        f"{before}{shown}loss scale: 1.0 | grad norm: {job.norm(step, 0.1, 1):.3f} | number of "
        f"skipped iterations:   0 | number of nan iterations:   {int(not shown)} |"
    )


def _deepspeed_step(job: Job, step: int) -> str:
    lr = 1e-5 * _left(job, step)
    return f"step={step}, skipped=0, lr=[{lr:.6e}, {lr:.6e}], mom=[(0.9, 0.95), (0.9, 0.95)]"


def _pipeline_step(job: Job, step: int) -> str:
    took = 1 / _rate(job)
    return (
        f"steps: {step} loss: {job.loss(step):.4f} iter time (s): {took:.3f} samples/sec: "
        f"{256 / took:.3f}"
    )


def _titan_step(job: Job, step: int) -> str:
    return (
        f"step: {step:2d}  loss: {job.loss(step):7.4f}  grad_norm: {job.norm(step, 0.2, 2):.4f}  "
        f"memory: {job.rng.uniform(44, 46):.2f}GiB(57.{step % 9}0%)  tps: "
        f"{int(7000 * job.rng.uniform(0.95, 1.05)):,}  tflops: {job.rng.uniform(300, 330):.2f}  "
        f"mfu: {job.rng.uniform(31, 33):.2f}%"
    )


def _maxtext(job: Job, step: int) -> str:
    took = 1 / _rate(job)
    return (
        f"completed step: {step}, seconds: {took:.3f}, TFLOP/s/device: "
        f"{job.rng.uniform(160, 190):.3f}, Tokens/s/device: {8192 / took:.3f}, total_weights: "
        f"{65536 * job.world}, loss: {job.loss(step):.3f}"
    )


def _flax(job: Job, step: int) -> str:
    return f"[{step}] grad_norm={job.norm(step, 0.2, 2):.4f}, loss={job.loss(step):.5f}"


def _keras(job: Job, step: int) -> str:
    took = max(1, int(job.interval))
    return (
        f"Epoch {step}/{job.total}\n1875/1875 - {took}s - {max(1, took * 1000 // 1875)}ms/step - "
        f"accuracy: {min(0.99, 0.4 + step / job.total / 2):.4f} - loss: {job.loss(step):.4f}"
    )


def _tf_official(job: Job, step: int) -> str:
    return (
        f"train | step: {step:6d} | steps/sec: {_rate(job):6.1f} | output:\n    "
        f"{{'learning_rate': {1e-3 * _left(job, step):.6f}, 'training_loss': {job.loss(step):.5f}}}"
    )


def _residual(job: Job, step: int) -> str:
    value = 10 ** (-1 - 6 * step / job.total)
    return f"  iter {step:7d}   residual {value * job.rng.uniform(0.9, 1.1):.6e}   dt 1.00e-03"


def _openfoam(job: Job, step: int) -> str:
    value = 10 ** (-2 - 4 * step / job.total)
    clock = int((step - job.first) / job.every * job.interval)
    return (
        f"Time = {step / 1000:g}\n\nsmoothSolver:  Solving for Ux, Initial residual = "
        f"{value:.6g}, Final residual = {value / 30:.6g}, No Iterations 4\nExecutionTime = "
        f"{clock * 0.98:.2f} s  ClockTime = {clock} s\n"
    )


def _ray_step(job: Job, step: int) -> str:
    return f"Epoch: {step // 100}, step {step}, train_loss: {job.loss(step):.4f}"


def _nemo_step(job: Job, step: int) -> str:
    return (
        f"Training epoch 0, iteration {step}/{job.total} | lr: {3e-4 * _left(job, step):.4g} | "
        f"global_batch_size: 512 | global_step: {step} | reduced_train_loss: {job.loss(step):.4g}"
        f" | train_step_timing in s: {1 / _rate(job):.4g}"
    )


def _fairseq_step(job: Job, step: int) -> str:
    loss = job.loss(step)
    return (
        f"train_inner | epoch 001: {step:6d} / {job.total} loss={loss:.3f}, ppl={2**loss:.2f}, "
        f"wps={job.rng.uniform(9e4, 1e5):.1f}, ups={_rate(job):.2f}, wpb=98304, bsz=512, "
        f"num_updates={step}, lr=0.0005, gnorm={job.norm(step, 0.5, 1.5):.3f}, loss_scale=8"
    )


def _mm_step(job: Job, step: int) -> str:
    eta = _clock_text((job.total - step) / _rate(job))
    return (
        f"Epoch(train)  [1][{step:5d}/{job.total}]  lr: 2.0000e-02  eta: {eta}  time: "
        f"{1 / _rate(job):.4f}  data_time: {job.rng.uniform(0.005, 0.02):.4f}  memory: 11873  "
        f"loss: {job.loss(step):.4f}"
    )


def _detectron_step(job: Job, step: int) -> str:
    eta = _clock_text((job.total - step) / _rate(job))
    return (
        f" eta: {eta}  iter: {step}  total_loss: {job.loss(step):.3f}  time: {1 / _rate(job):.4f}"
        f"  data_time: 0.0{step % 90:02d}  lr: 0.02  max_mem: 8121M"
    )


def _timm(job: Job, step: int) -> str:
    loss = job.loss(step)
    return (
        f"Train: 0 [{step:4d}/{job.total} ({100 * step / job.total:3.0f}%)]  Loss: {loss:.3f} "
        f"({loss:.3g})  Time: {1 / _rate(job):.3f}s, {256 * _rate(job):.2f}/s  LR: 1.000e-05  "
        f"Data: 0.01{step % 9} (0.014)"
    )


def _accelerate_step(job: Job, step: int) -> str:
    return f"  step = {step}: train_loss = {job.loss(step):.5f}, lr = {5e-5 * _left(job, step):.3e}"


def _olmo_step(job: Job, step: int) -> str:
    return (
        f"[step={step}/{job.total},epoch=1]\n    optim/total grad norm="
        f"{job.norm(step, 0.2, 2):.4f}\n    throughput/device/TPS="
        f"{job.rng.uniform(9000, 11000):,.0f}\n    train/CE loss={job.loss(step):.3f}"
    )


# ---------------------------------------------------------------- the programs

TORCH_OPENING = (
    "world size {world}, {model} on {data}",
    "number of parameters: {params}M",
    "loaded {samples} samples of {data}",
)
HF_OPENING = (
    "***** Running training *****",
    "  Num examples = {samples}",
    "  Num Epochs = 3",
    "  Total optimization steps = {total}",
)
HF_CLOSING = (
    "{{'train_runtime': {seconds}, 'train_samples_per_second': 41.27, 'train_steps_per_second': "
    "1.29, 'train_loss': 2.1176, 'epoch': 3.0}}",
)
MEGATRON_OPENING = (
    "> initializing torch distributed ...",
    "> initialized tensor model parallel with size {tp}",
    " > number of parameters on (tensor, pipeline) model parallel rank (0, 0): {params}000000",
    "> building train, validation, and test datasets for GPT ...",
    "training ...",
)
DEEPSPEED_OPENING = (
    "DeepSpeed info: version=0.16.4, git-hash=unknown, git-branch=unknown",
    "Creating torch.bfloat16 ZeRO stage 3 optimizer",
    "DeepSpeed Final Optimizer = DeepSpeedZeroOptimizer_Stage3",
)
MPI_OPENING = (
    "Running on {world} MPI ranks",
    "mesh: {samples} cells, {params} partitions",
)

PROGRAMS: tuple[Program, ...] = (
    Program("loss", "torch", "none", _plain, _loss_line, TORCH_OPENING, ("Training complete.",),
            every_rank=True, prints=True),
    Program("loss-log", "torch", "full", _logging, _loss_line, TORCH_OPENING,
            ("training finished, saving final model", "done"), every_rank=True, err=True),
    Program("loss-named", "torch", "full", _logging_named, _loss_of_total, TORCH_OPENING,
            ("Training complete.",), err=True),
    Program("ranked", "torch", "full", _ranked, _loss_of_total, TORCH_OPENING,
            ("finished {total} steps", "Training complete."), every_rank=True, names_rank=True,
            prints=True),
    Program("ranked-bare", "torch", "none", _ranked_bare, _loss_line, TORCH_OPENING,
            ("Training complete.",), every_rank=True, names_rank=True, prints=True),
    Program("iso", "torch", "full", _iso, _loss_of_total, TORCH_OPENING,
            ("training finished after {total} steps",), every_rank=True, names_rank=True),
    Program("loguru", "torch", "full", _loguru, _epoch_step, TORCH_OPENING,
            ("Training finished. Best checkpoint: {folder}/out/best.pt",), err=True),
    Program("epochs", "torch", "none", _plain, _epoch_step, TORCH_OPENING,
            ("Finished Training",), every_rank=True, prints=True),
    Program("nanogpt", "torch", "none", _plain, _nanogpt,
            ("tokens per iteration will be: 491,520", "number of parameters: {params}.34M",
             "using fused AdamW: True", "compiling the model... (takes a ~minute)"),
            ("step {total}: train loss 3.1121, val loss 3.1247",
             "saving checkpoint to {folder}/out",
             "Training complete."), prints=True),
    Program("pipes", "torch", "none", _plain, _pipes,
            ("total desired batch size: 524288", "=> calculated gradient accumulation steps: 4",
             "found 99 shards for split train", "using fused AdamW: True"),
            ("Training complete.",), prints=True),
    Program("mnist", "torch", "none", _plain, _mnist, TORCH_OPENING,
            ("\nTest set: Average loss: 0.0274, Accuracy: 9912/10000 (99%)\n",
             "Training complete."),
            every_rank=True, prints=True),
    Program("json", "torch", "full", _json, _loss_of_total, TORCH_OPENING,
            ("training complete",), every_rank=True, names_rank=True),
    Program("json-ecs", "torch", "full", _json_ecs, _loss_line, TORCH_OPENING,
            ("run finished, final checkpoint saved",), every_rank=True, names_rank=True),
    Program("trainer", "torch", "none", _plain, _trainer, HF_OPENING, HF_CLOSING, prints=True),
    Program("trainer5", "torch", "none", _plain, _trainer5, HF_OPENING, HF_CLOSING, prints=True),
    Program("trainer-bar", "torch", "none", _plain, _trainer, HF_OPENING, HF_CLOSING, bar=True),
    Program("lightning", "torch", "none", _plain, _loss_line,
            ("GPU available: True (cuda), used: True",
             "distributed_backend=nccl\nAll distributed processes registered. Starting with "
             "{world} processes",
             "{params}.0 M    Trainable params"),
            ("`Trainer.fit` stopped: `max_steps={total}` reached.",), bar=True),
    Program("tqdm", "torch", "none", _plain, _loss_line, TORCH_OPENING, ("Training complete.",),
            every_rank=True, bar=True),
    Program("factory", "torch", "full", _factory, _trainer, HF_OPENING, HF_CLOSING, err=True),
    Program("megatron", "torch", "full", _megatron, _megatron_step, MEGATRON_OPENING,
            ("[after training is done] datetime: {now}",), last=True),
    Program("deepspeed", "torch", "full", _deepspeed, _deepspeed_step, DEEPSPEED_OPENING,
            ("Training complete.",), names_rank=True),
    Program("deepspeed-pipe", "torch", "none", _plain, _pipeline_step, DEEPSPEED_OPENING,
            ("Training complete.",), prints=True),
    Program("titan", "torch", "full", _titan, _titan_step,
            ("Starting job: {model}", "Building 1-D device mesh with ['dp_shard'], [{world}]",
             "Training starts at step 1, with local batch size 8"),
            ("Training completed",), every_rank=True, err=True),
    Program("accelerate", "torch", "full", _accelerate, _accelerate_step, HF_OPENING,
            ("  Training complete, model saved in {folder}/out",), err=True),
    Program("fairseq", "torch", "full", _fairseq, _fairseq_step,
            ("fairseq_cli.train | training on {world} devices (GPUs/TPUs)",
             "fairseq_cli.train | num. shared model params: {params}000000"),
            ("fairseq_cli.train | done training in {seconds} seconds",)),
    Program("mmengine", "torch", "yearless", _mmengine, _mm_step,
            ("Checkpoints will be saved to {folder}/work_dirs.",),
            ("Saving checkpoint at 1 epochs", "training finished"), err=True),
    Program("mmdet", "torch", "full", _mmcv, _mm_step,
            ("Checkpoints will be saved to {folder}/work_dirs by HardDiskBackend.",),
            ("Saving checkpoint at 1 epochs", "training finished"), err=True),
    Program("detectron", "torch", "yearless", _detectron, _detectron_step,
            (" Starting training from iteration 0",),
            (" Overall training speed: {total} iterations in 1:12:19",)),
    Program("timm", "torch", "none", _plain, _timm,
            ("Model {model} created, param count:{params}557032",
             "Scheduled epochs: 300. LR stepped per epoch."),
            ("*** Best metric: 78.51 (epoch 287)", "Training complete.")),
    Program("nemo", "torch", "full", _nemo, _nemo_step,
            ("Experiments will be logged at {folder}/nemo_experiments", "Setting up optimizers"),
            ("`Trainer.fit` stopped: `max_steps={total}` reached.",), last=True),
    Program("olmo", "torch", "full", _olmo, _olmo_step,
            ("Building model with {params}M parameters...", "Beginning training loop"),
            ("Training complete",), err=True),
    Program("maxtext", "jax", "none", _plain, _maxtext,
            ("Num_devices: {world}, shape (1, 1, {world}, 1)",
             "number parameters: {params}.210 million"),
            ("Training complete.",), every_rank=True),
    Program("flax", "jax", "yearless", _absl, _flax,
            ("JAX process: 0 / {world}", "Starting training loop at step {first}."),
            ("Finished training.",), every_rank=True, err=True),
    Program("jax-log", "jax", "full", _logging, _maxtext,
            ("Initialized JAX distributed with {world} processes",), ("Training complete.",),
            err=True),
    Program("keras", "keras", "none", _plain, _keras, ("Number of devices: {world}",),
            ("saved model to {folder}/model.keras", "Training complete.")),
    Program("tf-official", "keras", "none", _plain, _tf_official,
            ("restoring or initializing model...", "initialized model."),
            ("saved checkpoint to {folder}/ckpt-{total}.", "training complete")),
    Program("solver", "mpi", "none", _plain, _residual, MPI_OPENING,
            ("converged, wall time {seconds} s",), prints=True),
    Program("solver-log", "mpi", "full", _ranked, _residual, MPI_OPENING,
            ("converged", "finalizing MPI"), every_rank=True, names_rank=True, prints=True),
    Program("openfoam", "mpi", "none", _plain, _openfoam,
            ("nProcs : {world}", "Create time", "Starting time loop"),
            ("End", "Finalising parallel run")),
    Program("ray-train", "ray", "none", _plain, _ray_step, TORCH_OPENING,
            ("Training finished",), every_rank=True),
    Program("ray-log", "ray", "full", _logging, _loss_of_total, TORCH_OPENING,
            ("training finished",), every_rank=True, err=True),
)  # fmt: skip


def draw(rng: random.Random, able: list[Program]) -> Program:
    """One of some programs, the families with few of them more often."""
    weights = {"ray": 5, "keras": 4}
    return rng.choices(able, [weights.get(one.family, 1) for one in able])[0]


def fill(job: Job, text: str, now: datetime) -> str:
    """Put the facts of a job into an opening or closing text."""
    return text.format(
        world=job.world,
        model=job.model,
        data=job.data,
        folder=job.folder,
        total=job.total,
        first=job.first,
        params=100 + job.number % 900,
        samples=10_000 + job.number % 900_000,
        seconds=round((now - job.started).total_seconds(), 1),
        tp=min(8, job.world),
        now=f"{now:%Y-%m-%d %H:%M:%S}.{now.microsecond:06d} ",
    )


# ---------------------------------------------------------------- a run of a program

NCCL_VERSIONS = ("2.18.5+cuda12.1", "2.20.5+cuda12.4", "2.21.5+cuda12.4", "2.26.2+cuda12.2")


# What the first rank of a torch program prints besides, before it trains.
EXTRAS = (
    "NCCL version {nccl}",
    "{host}:{pid}:{pid} [0] NCCL INFO Bootstrap : Using eth0:10.1.4.7<0>",
    "{host}:{pid}:{pid} [0] NCCL INFO cudaDriverVersion 12040\n"
    "{host}:{pid}:{pid} [0] NCCL INFO NCCL version {nccl}",
    "wandb: Currently logged in as: research. Use `wandb login --relogin` to force relogin",
    "wandb: Tracking run with wandb version 0.19.1\nwandb: Syncing run {data}-{number}",
    "Using bfloat16 Automatic Mixed Precision (AMP)",
    "PyTorch 2.6.0+cu124, CUDA 12.4, cuDNN 9.1.0, Python 3.11.9",
    "loading tokenizer of {model}",
    "trainable params: 41,943,040 || all params: 8,072,204,288 || trainable%: 0.5196",
    "Loading checkpoint shards: 100%|██████████| 4/4 [00:06<00:00,  1.52s/it]",
    "Map (num_proc=16): 100%|██████████| {number}/{number} [00:41<00:00, 3588.12 examples/s]",
    "FSDP: wrapped 32 blocks, sharding strategy FULL_SHARD",
    "gradient checkpointing enabled",
    "arguments: batch_size=8 accumulate=4 lr=0.0002 warmup=500 seq_len=4096 seed=1234",
    "resolved config written to out/{data}-{number}/config.yaml",
)


def printers(job: Job, program: Program, *, every_rank: bool) -> tuple[int, ...]:
    """The ranks that print progress."""
    if every_rank:
        return tuple(range(job.world))
    return (job.world - 1,) if program.last else (0,)


def opening(
    job: Job, program: Program, who: tuple[int, ...], *, members: bool
) -> tuple[list[Line], float]:
    """The lines before the first step, and the seconds that they took.

    members: each rank tells its number.
    """
    at = job.rng.uniform(2, 20)
    lines: list[Line] = []
    extras = job.rng.sample(EXTRAS, job.rng.choice((0, 1, 2, 4)))
    for text in extras if program.family == "torch" else ():
        # bars and wandb write to standard error, NCCL writes each line at once
        held = not any(word in text for word in ("%|", "wandb", "NCCL"))
        lines.append(Line(at, 0, _extra(job, text), "start", err=not held))
        at += job.rng.uniform(0.2, 8)
    if members or program.name == "lightning":
        lines += _members(job, program, at)
    for text in program.opening:
        at += job.rng.uniform(0.3, 25)
        first = who[0] if len(who) == 1 else 0
        content = fill(job, text, job.clock(at))
        shown = content if program.last else program.write(job, first, job.clock(at), content)
        lines.append(Line(at, first, shown, "start", err=program.err))
    return lines, at


def _extra(job: Job, text: str) -> str:
    return text.format(
        host=job.hosts[0],
        pid=job.pids[0],
        nccl=NCCL_VERSIONS[job.number % len(NCCL_VERSIONS)],
        model=job.model,
        data=job.data,
        number=job.number,
    )


def ray_workers(job: Job, ips: list[str]) -> list[Line]:
    """Ray Train tells which process is which rank."""
    workers = "".join(
        f"\n- (node_id={job.number:x}{rank // job.per_host:02x}, ip={ips[rank]}, "
        f"pid={job.pids[rank]}) world_rank={rank}, local_rank={job.local(rank)}, "
        f"node_rank={rank // job.per_host}"
        for rank in range(job.world)
    )
    head = f"(TorchTrainer pid={job.pids[0] - 4}) "
    text = f"Started distributed worker processes: {workers}".replace("\n", f"\n{head}")
    return [Line(1.5, None, head + text, "start")]


def _members(job: Job, program: Program, at: float) -> list[Line]:
    """A line a rank that tells its global rank."""
    if program.name == "lightning":
        forms = ["Initializing distributed: GLOBAL_RANK: {0}, MEMBER: {1}/{2}"]
    elif program.family == "torch":
        forms = ["process group ready: rank {0} of {2}", "| distributed init (rank {0}): env://"]
    elif program.family == "jax":
        forms = ["JAX process: {0} / {2}", "jax.distributed initialized, process_id={0} of {2}"]
    else:
        forms = ["hello from rank {0} of {2}", "rank {0}/{2} is up"]
    form = job.rng.choice(forms)
    return [
        Line(
            at + 0.01 * rank,
            rank,
            program.write(job, rank, job.clock(at), form.format(rank, rank + 1, job.world)),
            "start",
            err=program.err,
        )
        for rank in range(job.world)
    ]


def progress(
    job: Job, program: Program, rank: int, step: int, at: float, since: float
) -> list[Line]:
    """What `rank` prints at a step; `since`: when the loop began."""
    now = job.clock(at)
    lines = []
    if program.bar:
        head, tail = ("Epoch 0: ", ", v_num=0") if program.name == "lightning" else ("", "")
        text = bar_text(job, step, at - since, head=head, tail=tail)
        lines.append(Line(at, rank, text, "step", bar=True, err=True, step=step))
        if program.name != "trainer-bar" or step // job.every % 5:
            return lines
    text = program.write(job, rank, now, program.step(job, step))
    lines.append(Line(at, rank, text, "step", err=program.err, step=step))
    return lines


def message(job: Job, program: Program, rank: int, at: float, text: str, mark: Mark) -> Line:
    """A line of the program's logger."""
    return Line(at, rank, program.write(job, rank, job.clock(at), text), mark, err=program.err)


def closing(job: Job, program: Program, rank: int, at: float) -> list[Line]:
    """What a rank says when its program ended well."""
    lines = []
    for text in program.closing:
        at += job.rng.uniform(0.1, 8)
        shown = fill(job, text, job.clock(at))
        if program.name != "megatron":
            shown = program.write(job, rank, job.clock(at), shown)
        lines.append(Line(at, rank, shown, "finish", err=program.err))
    return lines


def times(job: Job, start: float, count: int) -> list[float]:
    """`count` times from `start` on, one interval apart with jitter."""
    at, found = start, []
    for _ in range(count):
        at += job.interval * job.rng.uniform(0.9, 1.12)
        found.append(at)
    return found
