"""Inside of somebody else's service: many threads, and nothing of the process is changed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import ThreadingHTTPServer
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

import diagnose
from diagnose.timeline.frame import PROGRESS_COLUMNS

ROOT = Path(__file__).parents[1]
NAMES = sorted(path.parent.name for path in ROOT.glob("fixtures/*/expected.yaml"))

# A process in which the first that anybody asks for is asked for by eight threads at once.
SERVICE = """
import gc, json, logging, os, signal, sys, threading, warnings
from concurrent.futures import ThreadPoolExecutor

def state():
    return {
        "signals": {str(n): str(signal.getsignal(n)) for n in signal.valid_signals()},
        "folder": os.getcwd(),
        "umask": [os.umask(0o22), os.umask(0o22)][1],
        "environment": dict(os.environ),
        "warnings": str(warnings.filters),
        "garbage": [gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()],
        "hooks": [sys.excepthook is sys.__excepthook__, str(threading.excepthook)],
        "streams": [sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__],
        "recursion": sys.getrecursionlimit(),
        "switches": sys.getswitchinterval(),
        "logging": [logging.root.level, len(logging.root.handlers)],
    }

import numpy  # adds filters of warnings, as it does for everybody
os.umask(0o22)
warnings.simplefilter("error")
before = state()
import diagnose
names = sys.argv[1:]
together = threading.Barrier(8)

def verdict(name):
    return diagnose.diagnose(diagnose.load(f"fixtures/{name}")).to_dict()

def at_once(name):
    if not started.is_set():
        together.wait()
        started.set()
    return verdict(name)

started = threading.Event()
with ThreadPoolExecutor(8) as threads:
    parallel = list(threads.map(at_once, names * 2))
serial = [verdict(name) for name in names]
after = state()
answer = {
    "changed": [name for name in before if before[name] != after[name]],
    "threads": threading.active_count(),
    "different": [n for n, a, b in zip(names * 2, serial * 2, parallel) if a != b],
    "verdicts": {name: one["verdict"] for name, one in zip(names, serial)},
}
with open(3, "w", closefd=False) as out:
    json.dump(answer, out, default=str)
"""


@pytest.mark.slow
def test_threads_get_what_one_gets_and_the_process_stays_as_it_was(tmp_path: Path) -> None:
    run_service(tmp_path, NAMES[::3])


def run_service(tmp_path: Path, names: list[str], checkout: Path = ROOT) -> None:
    file = tmp_path / "answer.json"
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" 3> "$0"', str(file), sys.executable, "-c", SERVICE, *names],
        cwd=checkout,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    answer = json.loads(file.read_text())
    assert answer["different"] == []
    assert answer["changed"] == []
    assert answer["threads"] == 1
    assert {"hung", "failed", "healthy"} <= set(answer["verdicts"].values())


@pytest.mark.slow
def test_a_catalog_that_nobody_compiled_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight threads begin with an empty cache: the catalog is read and compiled once."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    checkout = tmp_path / "checkout"
    shutil.copytree(ROOT / "diagnose", checkout / "diagnose", ignore=lambda *_: ["compiled"])
    for name in ("fixtures", "patterns"):
        (checkout / name).symlink_to(ROOT / name)
    run_service(tmp_path, NAMES, checkout)
    kept = [path.suffix for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert sorted(kept) == [".catalog", ".matcher"]


@pytest.mark.slow
def test_the_service_of_the_documentation() -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    code = page.partition("<!-- service -->\n```python\n")[2].partition("```\n<!-- end -->")[0]
    names: dict[str, object] = {}
    exec(code, names)
    server = names["server"]
    assert isinstance(server, ThreadingHTTPServer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_address[1]}/"
        log = (ROOT / "fixtures" / "torchrun-missing-rank" / "console.log").read_bytes()

        def ask(_: int) -> dict[str, object]:
            with urlopen(url, log, timeout=60) as answer:
                return dict(json.load(answer))

        with ThreadPoolExecutor(4) as clients:
            answers = list(clients.map(ask, range(8)))
        with pytest.raises(HTTPError) as empty:
            urlopen(url, b"", timeout=60)
        assert (empty.value.code, json.load(empty.value)) == (
            422,
            {"error": "no log to read: <paste>: empty"},
        )
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    job = diagnose.load_text(log.decode())
    assert answers == [json.loads(diagnose.render(job, diagnose.diagnose(job), "json"))] * 8


def test_forms_to_pass_on() -> None:
    job = diagnose.load_text("[rank0]: step 1\n[rank1]: ValueError: bad batch of /home/alice/x\n")
    result = diagnose.diagnose(job)
    starts = {"markdown": "### Failed: ", "github": "### Failed: ", "slack": '{\n  "text": "FAILED',
              "json": '{\n  "schema": "diagnose/2"', "terminal": "FAILED  "}  # fmt: skip
    for form, start in starts.items():
        assert diagnose.render(job, result, form).startswith(start)
    assert diagnose.render(job, result) == diagnose.render(job, result, "markdown")
    assert "alice" not in diagnose.render(job, result)
    assert "alice" in diagnose.render(job, result, redact=False)
    with pytest.raises(ValueError, match="no form 'pdf'; there are terminal, json"):
        diagnose.render(job, result, "pdf")


def _pods() -> str:
    """Eight pods of 40 steps each; that of rank 4 stops three steps before the others."""
    rows = []
    for step in range(1, 41):
        for pod in range(8):
            if pod != 4 or step <= 37:
                time = f"10:{step:02}:{pod:02}"
                rows.append(f"[pod/llm-worker-{pod}/main] 2026-03-04T{time}Z step={step} loss=2.0")
    return "\n".join(rows) + "\n"


def test_progress_has_every_step_of_every_author() -> None:
    progress = diagnose.load_text(_pods()).progress
    steps = progress.groupby("author")["step"]
    assert len(steps) == 8
    assert sorted(steps.last()) == [37, *[40] * 7]
    assert sorted(steps.count()) == [37, *[40] * 7]
    assert list(progress.columns) == [column.name for column in PROGRESS_COLUMNS]
    times = progress["time"].dropna()
    assert len(times) == len(progress)
    assert times.is_monotonic_increasing


@pytest.mark.parametrize(
    ("fixture", "signature", "rows"),
    [
        ("horovod-stalled-rank", "tensorflow.progress.step", 3),
        ("llama2-accessory-first-save", "accessory.run.step", 21),
    ],
)
def test_a_line_that_two_signatures_read_is_one_step(
    fixture: str, signature: str, rows: int
) -> None:
    progress = diagnose.load(ROOT / "fixtures" / fixture).progress
    assert set(progress["signature"]) == {signature}
    assert (len(progress), len(progress.drop_duplicates(["source", "line"]))) == (rows, rows)


def test_progress_is_empty_where_nothing_counts() -> None:
    progress = diagnose.load_text("hello\n").progress
    assert list(progress["step"]) == []
    assert "author" in progress.columns


def test_the_last_step_of_a_rank_is_that_of_its_pod() -> None:
    lines = [f"[pod/llm-worker-{pod}/main] [rank{pod}]: ready" for pod in range(8)]
    error = "[pod/llm-worker-4/main] [rank4]: ValueError: no more rows"
    ranks = diagnose.load_text("\n".join(lines) + "\n" + _pods() + error + "\n").ranks
    assert ranks["last_step"][4] == 37


def test_a_cell_of_a_notebook_shows_them_in_short() -> None:
    job = diagnose.load(ROOT / "fixtures" / "torchrun-missing-rank")
    result = diagnose.diagnose(job)
    assert "\n" not in repr(job) + repr(result)
    assert len(repr(job)) < 100
    assert len(repr(result)) < 200
    assert repr(result).startswith("<Diagnosis hung: ")
    assert "rank 5" in repr(result)
    page = result._repr_html_()
    assert "<b>HUNG</b>" in page
    assert "rank 5" in page
    hostile = diagnose.load_text("<script>alert(1)</script> password=hunter2hunter2\n")
    hostile.notes = ["<script>", "password=hunter2hunter2"]
    for shown in (hostile._repr_html_(), diagnose.diagnose(hostile)._repr_html_()):
        assert "<script>" not in shown
        assert "hunter2" not in shown


def test_the_page_is_a_form_like_the_others() -> None:
    job = diagnose.load(ROOT / "fixtures" / "torchrun-missing-rank")
    page = diagnose.render(job, diagnose.diagnose(job), "html")
    assert page.startswith("<!doctype html>")
    assert "Content-Security-Policy" in page
