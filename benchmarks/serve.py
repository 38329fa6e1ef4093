"""`diagnose serve` under load: latency of a paste, many clients, a slow upload, kill -9.

    python benchmarks/serve.py paste      # a paste of 200 lines, page to verdict, warm
    python benchmarks/serve.py clients    # 50 clients that paste at once, for 60 s
    python benchmarks/serve.py upload     # 200 MB by a slow client, others paste meanwhile
    python benchmarks/serve.py kill       # kill -9 at 20 moments, each followed by a restart

Each starts servers of its own on loopback, with a data folder of its own, and ends them.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from as_used import keep_byte_code

ROOT = Path(__file__).parents[1]
LOG = ROOT / "fixtures" / "torchrun-missing-rank" / "console.log"
API = "/api/v1/diagnoses"
LINES = 200
P95_SECONDS = 2.0  # of a paste among many
PAGES = 5  # that are looked at after each kill
GRACE = 30.0  # seconds that the last answers may take


@dataclass
class Server:
    """A server as its own process."""

    port: int
    pid: int
    process: subprocess.Popen[str] = field(repr=False)

    def ask(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> tuple[int, bytes, dict[str, str]]:
        """One request on a connection of its own: status, body, headers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.request(method, path, body or None, headers or {})
            reply = connection.getresponse()
            told = {name.lower(): value for name, value in reply.getheaders()}
            return reply.status, reply.read(), told
        finally:
            connection.close()

    def family(self) -> list[int]:
        """The server and all processes that it and these started."""
        found = [self.pid]
        for pid in found:
            for task in Path(f"/proc/{pid}/task").glob("*/children"):
                found += [int(child) for child in task.read_text().split()]
        return found

    def cpu(self) -> float:
        """Seconds of processor time of all of them, also of workers that have ended."""
        ticks = 0
        for pid in self.family():
            with suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                ticks += sum(map(int, fields[11:15]))
        return ticks / os.sysconf("SC_CLK_TCK")

    def resident(self) -> tuple[float, float]:
        """MiB of the server itself, and with all its workers (shared pages counted once)."""
        family = self.family()
        own = int(re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{self.pid}/status").read_text())[0])
        together = 0
        for pid in family:
            with suppress(OSError, IndexError):
                shares = Path(f"/proc/{pid}/smaps_rollup").read_text()
                together += int(re.findall(r"^Pss:\s+(\d+)", shares, re.MULTILINE)[0])
        return own / 1024, together / 1024


@contextmanager
def server(data: Path, *options: str) -> Iterator[Server]:
    """`diagnose serve` on a free port."""
    command = [sys.executable, "-m", "diagnose", "serve", "--port", "0", "--data", str(data)]
    process = subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stderr is not None
    line = process.stderr.readline()
    found = re.search(r":(\d+)/", line)
    if found is None:
        raise SystemExit(line + process.stderr.read())
    try:
        yield Server(int(found[1]), process.pid, process)
    finally:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        process.wait(60)
        rest = process.stderr.read()
        if rest and process.returncode != -signal.SIGKILL:  # whose helpers complain, then end
            print(rest, file=sys.stderr)


def text(number: int) -> bytes:
    """A paste of 200 lines, another one for each number."""
    lines = LOG.read_text().splitlines()
    lines += [f"[rank0]: note {number}" for _ in range(LINES - len(lines))]
    return "\n".join(lines).encode()


def form(word: str, paste: bytes) -> tuple[bytes, dict[str, str]]:
    """A paste as a browser sends it."""
    edge = "----edge7MA4YWxkTrZu0gW"
    head = f"--{edge}\r\nContent-Disposition: form-data; name="
    body = f'{head}"word"\r\n\r\n{word}\r\n{head}"text"\r\n\r\n'.encode()
    body += paste + f"\r\n--{edge}--\r\n".encode()
    return body, {"Content-Type": f"multipart/form-data; boundary={edge}"}


def visit(running: Server) -> tuple[str, dict[str, str]]:
    """The word of the form on the first page, and the cookie that goes with it."""
    _, page, headers = running.ask("GET", "/")
    found = re.search(rb'name="word" value="(\w+)"', page)
    assert found is not None
    return found[1].decode(), {"Cookie": headers["set-cookie"].partition(";")[0]}


def view(running: Server, word: str, cookie: dict[str, str], paste: bytes) -> int:
    """Paste through the page and read the post-mortem; the status, 429 where refused."""
    body, headers = form(word, paste)
    status, _, told = running.ask("POST", "/", body, headers | cookie)
    if status != 303:
        return status
    while True:
        status, page, _ = running.ask("GET", told["location"], headers=cookie)
        if status != 200 or b'id="headline"' in page:
            return status


def call(running: Server, paste: bytes) -> int:
    """Paste through the API and wait for the verdict; the status."""
    headers = {"Content-Type": "text/plain"}
    status, data, _ = running.ask("POST", f"{API}?wait=60", paste, headers)
    if status in (200, 202) and json.loads(data)["verdict"] != "hung":
        return 599
    return status


def paste(_arguments: argparse.Namespace) -> None:
    """One client, one paste after the other."""
    with tempfile.TemporaryDirectory() as data, server(Path(data)) as running:
        word, cookie = visit(running)
        for name, once in (
            ("page to post-mortem", lambda number: view(running, word, cookie, text(number))),
            ("API to verdict", lambda number: call(running, text(number))),
        ):
            took = []
            used = running.cpu()
            for number in range(60):
                began = time.perf_counter()
                assert once(number) == 200
                took.append(time.perf_counter() - began)
            took = took[10:]
            used = (running.cpu() - used) / 60
            middle, best = statistics.median(took) * 1e3, min(took) * 1e3
            print(
                f"{name}: median {middle:.0f} ms, best {best:.0f} ms, {share(took, 0.95)}; "
                f"{used * 1e3:.0f} ms of processor time each"
            )


def share_of(took: list[float], part: float) -> float:
    """A quantile in seconds."""
    return sorted(took)[min(len(took) - 1, int(len(took) * part))]


def share(took: list[float], part: float) -> str:
    """A quantile in words."""
    return f"p{part * 100:.0f} {share_of(took, part) * 1e3:.0f} ms"


def clients(arguments: argparse.Namespace) -> None:
    """Many clients, each pasting again as soon as it has its verdict."""
    for name in ("API", "page"):
        with tempfile.TemporaryDirectory() as data, server(Path(data), "--workers", "2") as running:
            print(f"{name}: {arguments.clients} clients, {arguments.seconds:g} s", flush=True)
            load = _Load(running, name, arguments.seconds)
            try:
                load.run(arguments.clients)
            finally:
                load.tell()


class _Load:
    """Clients at one server, and what they met so far."""

    def __init__(self, running: Server, name: str, seconds: float) -> None:
        self.running, self.name, self.seconds = running, name, seconds
        self.took: list[float] = []
        self.refused = 0
        self.errors: list[str] = []
        self.memory = [running.resident()]
        self.used = running.cpu()
        self.began = time.monotonic()
        self.over = threading.Event()

    def run(self, count: int) -> None:
        """Let so many paste; ends GRACE seconds after its time at the latest."""
        threads = [
            threading.Thread(target=self._client, args=(n,), daemon=True) for n in range(count)
        ]
        for thread in threads:
            thread.start()
        try:
            end = self.began + self.seconds
            while time.monotonic() < end:
                time.sleep(min(5.0, max(0.0, end - time.monotonic())))
                self.memory.append(self.running.resident())
        finally:
            self.over.set()
        for thread in threads:
            thread.join(max(0.0, end + GRACE - time.monotonic()))
        hanging = sum(thread.is_alive() for thread in threads)
        self.errors += [f"no answer within {GRACE} s"] * hanging

    def tell(self) -> None:
        """Print what is known, also of a run that was cut short."""
        took, seconds = self.took, min(self.seconds, time.monotonic() - self.began)
        print(
            f"  {len(took)} verdicts ({len(took) / seconds:.1f}/s), {len(self.errors)} errors, "
            f"{self.refused} times 429"
        )
        if took:
            used = (self.running.cpu() - self.used) / len(took) * 1e3
            print(
                f"  median {statistics.median(took) * 1e3:.0f} ms, {share(took, 0.95)}, "
                f"{share(took, 0.99)}; {used:.0f} ms of processor time each"
            )
        step = max(1, len(self.memory) // 6)
        shown = ", ".join(f"{own:.0f}/{all_:.0f}" for own, all_ in self.memory[::step])
        print(f"  MiB of the server / with its workers: {shown}")
        for error in sorted(set(self.errors)):
            print(f"  {self.errors.count(error)}× {error}")
        good = took and not self.errors and share_of(took, 0.95) <= P95_SECONDS
        print(f"  {'as it must be' if good else 'NOT as it must be'}", flush=True)

    def _client(self, number: int) -> None:
        word, cookie = visit(self.running)
        turn = 0
        while not self.over.is_set():
            turn += 1
            once = text(number * 1000 + turn)
            began = time.perf_counter()
            try:
                if self.name == "API":
                    status = call(self.running, once)
                else:
                    status = view(self.running, word, cookie, once)
            except (OSError, http.client.HTTPException) as error:
                if not self.over.is_set():
                    self.errors.append(repr(error))
                continue
            if status == 429:
                self.refused += 1
                self.over.wait(1)
            elif status != 200:
                self.errors.append(str(status))
            else:
                self.took.append(time.perf_counter() - began)


def upload(arguments: argparse.Namespace) -> None:
    """A slow client sends a large archive; another pastes meanwhile."""
    with tempfile.TemporaryDirectory() as data, server(Path(data), "--workers", "2") as running:
        size = arguments.megabytes * 1_000_000
        archive = Path(data) / "logs.tar"
        _make_archive(archive, size)
        before = running.resident()
        quiet = _pastes(running, 5)
        peak = [0.0, 0.0]
        status: list[int] = []

        def send() -> None:
            connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=300)
            headers = {
                "Content-Type": "application/octet-stream",
                "Content-Length": str(archive.stat().st_size),
            }
            connection.putrequest("POST", f"{API}?name=logs.tar&wait=60")
            for name, value in headers.items():
                connection.putheader(name, value)
            connection.endheaders()
            with archive.open("rb") as stream:
                while block := stream.read(256 << 10):
                    connection.send(block)
                    time.sleep(256 / 1024 / arguments.rate)
            status.append(connection.getresponse().status)

        thread = threading.Thread(target=send)
        began = time.monotonic()
        thread.start()
        took: list[float] = []
        while thread.is_alive():
            took += _pastes(running, 1)
            peak = [max(pair) for pair in zip(peak, running.resident(), strict=True)]
            time.sleep(0.2)
        medians = [statistics.median(times) * 1e3 for times in (quiet, took)]
        print(
            f"{archive.stat().st_size / 1e6:.0f} MB in {time.monotonic() - began:.0f} s, status "
            f"{status}: server {before[0]:.0f} → at most {peak[0]:.0f} MiB "
            f"(with workers {before[1]:.0f} → {peak[1]:.0f}); pastes before: median "
            f"{medians[0]:.0f} ms, meanwhile {medians[1]:.0f} ms"
        )


def _make_archive(path: Path, size: int) -> None:
    import io  # noqa: PLC0415
    import tarfile  # noqa: PLC0415

    lines = LOG.read_bytes()
    each = size // 8
    with tarfile.open(path, "w") as tar:
        for rank in range(8):
            log = (lines * (each // len(lines) + 1))[:each]
            entry = tarfile.TarInfo(f"job/rank{rank}.log")
            entry.size = len(log)
            tar.addfile(entry, io.BytesIO(log))


def _pastes(running: Server, count: int) -> list[float]:
    took = []
    for number in range(count):
        began = time.perf_counter()
        assert call(running, text(number)) == 200
        took.append(time.perf_counter() - began)
    return took


def kill(arguments: argparse.Namespace) -> None:
    """Clients paste and upload; the server is killed at a random moment and started again.

    What was accepted is looked at after each restart, so that a run that is cut short tells what it
    knows; it ends by itself after --minutes.
    """
    chance = random.Random(arguments.seed)
    seen = _Seen()
    end = time.monotonic() + arguments.minutes * 60
    kills = 0
    with tempfile.TemporaryDirectory() as folder:
        try:
            for turn in range(arguments.times + 1):
                with server(Path(folder)) as running:
                    seen.check(running)
                    print(f"  {turn}: {seen}", flush=True)
                    if turn == arguments.times or time.monotonic() > end:
                        break
                    _killed(running, chance, arguments.pasters, seen)
                    kills += 1
        finally:
            left = len(list((Path(folder) / "spool").iterdir()))
            good = kills and not (seen.lost or seen.twice or seen.half)
            print(
                f"{kills} of {arguments.times} kills: {seen}; {left} uploads left over; "
                f"{'as it must be' if good else 'NOT as it must be'}",
                flush=True,
            )


@dataclass
class _Seen:
    """What clients were told: jobs that were `accepted`, and those `answered`; what is wrong."""

    answered: set[str] = field(default_factory=set)
    accepted: set[str] = field(default_factory=set)
    checked: set[str] = field(default_factory=set)  # that have their result and a whole page
    lost: int = 0
    twice: int = 0
    half: int = 0

    def __str__(self) -> str:
        return (
            f"{len(self.accepted)} accepted, {len(self.answered)} answered; {self.lost} lost, "
            f"{self.twice} twice, {self.half} half pages"
        )

    def check(self, running: Server) -> None:
        """All that was accepted is there once and in the end has a result; new ones have a page."""
        found = _all(running)
        there = {str(item["id"]): item["state"] for item in found}
        self.twice += len(found) - len(there)
        gone = self.accepted - there.keys()
        gone |= {id_ for id_ in self.checked & self.answered if there.get(id_) != "done"}
        new = self.accepted - gone - self.checked
        self.lost += len(gone) + sum(not self._has_result(running, id_) for id_ in sorted(new))
        for id_ in random.Random(1).sample(sorted(new), min(PAGES, len(new))):
            status, page, _ = running.ask("GET", f"/d/{id_}")
            self.half += status != 200 or not page.rstrip().endswith(b"</html>")
        for known in (self.accepted, self.answered, self.checked):
            known.difference_update(gone)  # each counts once
        self.checked |= new

    def _has_result(self, running: Server, id_: str) -> bool:
        for _ in range(3):  # a machine may be slow
            _, data, _ = running.ask("GET", f"{API}/{id_}?wait=60")
            document = json.loads(data)
            if document["state"] not in ("queued", "running"):
                break
        if id_ in self.answered:
            good = document["state"] == "done" and bool(document["diagnosis"])
        else:
            good = document["state"] in ("done", "failed")
        if not good:
            print(f"  {id_}: {document['state']} {document['error']}", flush=True)
        return good


def _killed(running: Server, chance: random.Random, pasters: int, seen: _Seen) -> None:
    """Let clients work for a while, and kill the server amid that."""
    stop = threading.Event()
    threads = [
        threading.Thread(
            target=_busy, args=(running, stop, n, seen.answered, seen.accepted), daemon=True
        )
        for n in range(pasters)
    ]
    for thread in threads:
        thread.start()
    time.sleep(chance.uniform(0.05, 4.0))
    os.kill(running.pid, signal.SIGKILL)
    stop.set()
    for thread in threads:
        thread.join(GRACE)


def _busy(
    running: Server, stop: threading.Event, number: int, answered: set[str], accepted: set[str]
) -> None:
    turn = 0
    while not stop.is_set():
        turn += 1
        try:
            headers = {"Content-Type": "text/plain" if number % 3 else "application/octet-stream"}
            body = text(turn) if number % 3 else text(turn) * 30
            wait = "?wait=20" if number % 2 else ""
            status, data, _ = running.ask("POST", f"{API}{wait}", body, headers)
        except (OSError, http.client.HTTPException):
            return
        if status in (200, 202):
            document = json.loads(data)
            accepted.add(document["id"])
            if document["state"] == "done":
                answered.add(document["id"])
            elif not wait:
                time.sleep(0.15)  # or what is left to do outweighs the kills
        elif status == 429:
            time.sleep(0.2)


def _all(running: Server) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    before = ""
    while True:
        _, data, _ = running.ask("GET", f"{API}?limit=200{before}")
        page = json.loads(data)
        found += page["diagnoses"]
        if page["next"] is None:
            return found
        before = f"&before={page['next']}"


BENCHMARKS = {"paste": paste, "clients": clients, "upload": upload, "kill": kill}


def main() -> None:
    """Run one of them."""
    keep_byte_code()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=BENCHMARKS)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--rate", type=float, default=10, help="MiB/s of the slow client")
    parser.add_argument("--pasters", type=int, default=6, help="clients while it is killed")
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=6, help="after which no more are killed")
    parser.add_argument("--seed", type=int, default=16)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a verdict also then
    try:
        BENCHMARKS[arguments.what](arguments)
    except KeyboardInterrupt:
        raise SystemExit("interrupted") from None


if __name__ == "__main__":
    main()
