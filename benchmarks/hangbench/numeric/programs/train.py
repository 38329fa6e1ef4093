"""A small data-parallel training on CPUs, as torchrun starts it; its data decides how it goes."""

import argparse
import logging
import math
import sys
import time
import zlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--data", required=True)
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--style", default="plain")
parser.add_argument("--every", type=int, default=1)
parser.add_argument("--printers", default="first")
parser.add_argument("--scaler", type=float, default=0.0)
parser.add_argument("--clip", type=float, default=0.0)
parser.add_argument("--anomaly", action="store_true")
parser.add_argument("--on-bad", default="go")
parser.add_argument("--check-weights", type=int, default=0)
parser.add_argument("--evaluate", type=int, default=0)
parser.add_argument("--log-loss", action="store_true")
args = parser.parse_args()

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
log = logging.getLogger("train")
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(7)
torch.set_num_threads(1)
torch.autograd.set_detect_anomaly(args.anomaly)
batches, targets = torch.load(args.data)
model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
scaler = torch.amp.GradScaler("cpu", init_scale=args.scaler or 1.0, enabled=args.scaler > 0)


def show(step, loss, norm):
    if (args.printers == "first" and rank != 0) or step % args.every:
        return
    if args.style == "trainer":
        entry = {
            "loss": round(loss, 4),
            "grad_norm": norm,
            "learning_rate": args.lr,
            "epoch": round(step / 20, 2),
        }
        print(entry, flush=True)
    elif args.style == "titan":
        log.info(
            "step: %2d  loss: %7.4f  grad_norm: %7.4f  memory: 0.00GiB(0.00%%)  tps: 812",
            step,
            loss,
            norm,
        )
    elif args.style == "ranked":
        print(
            f"[Rank {rank}] step {step}/{args.steps} | loss {loss:.4f} | lr {args.lr:.1e}",
            flush=True,
        )
    elif args.style == "log":
        log.info("rank=%d step %d loss %.5f grad norm %.4f", rank, step, loss, norm)
    elif args.style == "epochs":
        epoch, inner = divmod(step, 20)
        print(f"Epoch [{epoch + 1}/3], Step [{inner + 1}/20], Loss: {loss:.4f}", flush=True)
    else:
        print(f"step {step} loss {loss:.4f}", flush=True)


def weights():
    parts = [p.detach().numpy().tobytes() for p in model.parameters()]
    return zlib.crc32(b"".join(parts))


def main():
    log.info("rank %d of %d is up", rank, world)
    for step in range(args.steps):
        x = batches[step % len(batches)][rank]
        y = targets[step % len(batches)][rank]
        optimizer.zero_grad()
        output = model(x)
        error = ((output.squeeze(1) - y) ** 2).mean()
        loss = torch.log(error) if args.log_loss else error
        if not math.isfinite(loss.item()) and args.on_bad == "stop":
            print(f"Loss is {loss.item()}, stopping training", flush=True)
            sys.exit(1)
        if not math.isfinite(loss.item()) and args.on_bad == "raise":
            raise FloatingPointError(f"non-finite loss at step {step}")
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_(
            model.parameters(), args.clip or 1e30, error_if_nonfinite=args.on_bad == "clip"
        ).item()
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        if args.scaler and scaler.get_scale() < before and rank == 0:
            print(
                "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to "
                f"{scaler.get_scale()}",
                flush=True,
            )
        show(step, loss.item(), norm)
        if args.check_weights and (step + 1) % args.check_weights == 0:
            found = [None] * world
            dist.all_gather_object(found, weights())
            assert len(set(found)) == 1, "Parameter hashes not matching across DP replicas"
            if rank == 0:
                log.info(">>> Weight hashes match after %d iterations...", step + 1)
        if args.evaluate and (step + 1) % args.evaluate == 0 and rank == 0:
            empty = torch.zeros(0)
            print(
                {"eval_loss": empty.mean().item(), "eval_samples": 0, "epoch": step / 20},
                flush=True,
            )
            print(f"class 7: IoU nan, perplexity {math.inf}", flush=True)
        time.sleep(0.02)
    if rank == 0:
        print("Training complete.", flush=True)
    dist.destroy_process_group()


main()
