"""Make one large log of whole public ones, repeated with their numbers and times moved on.

    python benchmarks/make_public.py --of FOLDER --size 1GiB --out /tmp/public.log

Each log comes again and again in an order of its own. Each time its clocks are some minutes later
and its long numbers larger, so that no two lines are the same which were not in one log.
"""

from __future__ import annotations

import argparse
import random
import re
import time
from dataclasses import dataclass
from pathlib import Path

from make_log import size_of

_MOVED = re.compile(rb"(\d\d):(\d\d)(?=:\d\d)|(?<![\w.])(\d{4,9})(?![\w.])")
_LOGS = ("*.log", "*/*.log", "*/workerlog.*")


@dataclass(frozen=True, slots=True)
class Log:
    """A log in pieces: every second one is a clock or a number, with what it is as a number."""

    pieces: list[bytes]
    clocks: list[tuple[int, int]]  # index of a piece, minutes
    numbers: list[tuple[int, int, int]]  # index, number, digits

    def later(self, times: int) -> bytes:
        """The log as it is when it comes after so many others."""
        pieces = self.pieces.copy()
        for index, minutes in self.clocks:
            pieces[index] = b"%02d:%02d" % divmod((minutes + 7 * times) % 1440, 60)
        for index, number, digits in self.numbers:
            pieces[index] = b"%0*d" % (digits, (number + times) % 10**digits)
        return b"".join(pieces)


def parted(text: bytes) -> Log:
    """A log, ready to be repeated."""
    log = Log([], [], [])
    end = 0
    for found in _MOVED.finditer(text):
        log.pieces.append(text[end : found.start()])
        if found[3]:
            log.numbers.append((len(log.pieces), int(found[3]), len(found[3])))
        else:
            log.clocks.append((len(log.pieces), int(found[1]) * 60 + int(found[2])))
        log.pieces.append(found[0])
        end = found.end()
    log.pieces.append(text[end:] if text.endswith(b"\n") else text[end:] + b"\n")
    return log


def write(folder: Path, out: Path, size: int, seed: int) -> int:
    """Write about `size` bytes of the logs in a folder; returns how many it became."""
    rng = random.Random(seed)
    logs = [parted(path.read_bytes()) for form in _LOGS for path in sorted(folder.glob(form))]
    if not logs:
        raise SystemExit(f"no logs in {folder}")
    times = 0
    with out.open("wb") as sink:
        while True:
            for log in rng.sample(logs, len(logs)):
                if sink.tell() >= size:
                    return sink.tell()
                times += 1
                sink.write(log.later(times))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--of", type=Path, required=True, help="a folder with logs")
    parser.add_argument("--size", type=size_of, default=size_of("1GiB"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    begin = time.perf_counter()
    written = write(options.of, options.out, options.size, options.seed)
    print(f"{written / 2**20:.1f} MiB in {time.perf_counter() - begin:.1f} s")


if __name__ == "__main__":
    main()
