"""Cost of the HTML report: `python benchmarks/report.py [--ranks 8 1024 10000] [--big 1GiB]`.

For each number of ranks a job is made in which one rank never joins, with a log file per host, and
its page is rendered. Printed are the page's size, the seconds of rendering alone (wall and CPU)
and, with playwright and a Chromium, the time until the page can be used. `--big` does the same with
one log of 128 ranks of that size.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import tempfile
import time
from pathlib import Path

from make_log import (
    PER_HOST,
    VARIANTS,
    Plan,
    body,
    console_prefix,
    footer,
    header,
    minute,
    size_of,
    steps_for,
    write,
)

import diagnose
from diagnose.report.html import render

STEPS = 5
LIMITS = {8: 1.5, 1024: 2.0, 10_000: 5.0}  # MB


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--ranks", type=int, nargs="*", default=[8, 1024, 10_000])
    parser.add_argument("--big", type=size_of, default=None, help="one log of 128 ranks, say 1GiB")
    parser.add_argument("--keep", type=Path, default=None, help="keep the pages here")
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="diagnose-report-"))
    pages = options.keep or work
    pages.mkdir(parents=True, exist_ok=True)
    try:
        for ranks in options.ranks:
            measure(hosts(work / str(ranks), ranks), pages / f"{ranks}.html", ranks)
        if options.big:
            log = work / "big.log"
            plan = Plan(128, 77, steps_for(options.big, 128, console_prefix), 0)
            write(log, list(range(128)), plan)
            measure(log, pages / "big.html", 128)
    finally:
        shutil.rmtree(work)


def hosts(folder: Path, ranks: int) -> Path:
    """A folder with the log of each host of a job of `ranks` ranks."""
    folder.mkdir()
    plan = Plan(ranks, min(77, ranks - 3), STEPS, 0)
    for first in range(0, ranks, PER_HOST):
        mine = list(range(first, min(first + PER_HOST, ranks)))
        rng = random.Random(first)
        blocks = [minute(mine, console_prefix, rng) for _ in range(VARIANTS)]
        lines = "\n".join(header(mine, ranks, console_prefix, rng)).encode()
        end = "\n".join(footer(mine, plan.missing, plan.ended, console_prefix, rng)).encode()
        log = b"".join([lines, b"\n", *body(blocks, STEPS), end, b"\n"])
        (folder / f"gpu-node-{first // PER_HOST:04d}.log").write_bytes(log)
    return folder


def measure(job_path: Path, page_path: Path, ranks: int) -> None:
    begin = time.perf_counter()
    job = diagnose.load(job_path)
    diagnosis = diagnose.diagnose(job)
    triage = time.perf_counter() - begin
    wall, cpu = time.perf_counter(), time.process_time()
    page = render(job, diagnosis)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    page_path.write_text(page, encoding="utf-8")
    size = len(page.encode()) / 1e6
    limit = f" (limit {LIMITS[ranks]})" if ranks in LIMITS and job_path.is_dir() else ""
    print(
        f"{ranks:6,} ranks, {len(job.timeline):,} events: page {size:.2f} MB{limit}, "
        f"report {wall:.2f} s wall {cpu:.2f} s CPU, after {triage:.1f} s of triage"
    )
    if (ready := interactive(page_path)) is not None:
        print(f"{'':14}usable in the browser after {ready:.2f} s (median of 5)")


def interactive(page: Path) -> float | None:
    """Seconds from opening a page until it is drawn; None without a browser."""
    try:
        from playwright.sync_api import sync_playwright  # noqa: PLC0415
    except ImportError:
        return None
    path = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if path is None:
        return None
    arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    times = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=arguments)
        for _ in range(5):
            tab = browser.new_page(viewport={"width": 1280, "height": 800})
            tab.goto(page.as_uri())
            tab.wait_for_selector("html[data-ready]", timeout=60_000)
            entry = "performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"
            times.append(tab.evaluate(entry) / 1000)
            tab.close()
        browser.close()
    return sorted(times)[len(times) // 2]


if __name__ == "__main__":
    main()
