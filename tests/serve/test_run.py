"""The command: addresses, tokens, folders, and a real process from start to end."""

from __future__ import annotations

import json
import random
import re
import signal
import sqlite3
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from diagnose.cli.main import run as command
from diagnose.errors import InputError
from diagnose.serve import run
from diagnose.serve.model import Settings
from diagnose.serve.store import Store

from .running import API, LOG, ROOT, running


@pytest.mark.parametrize(("host", "loopback"), [
    ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True),
    ("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("no such host", False), ("", False),
])  # fmt: skip
def test_which_addresses_are_loopback(host: str, loopback: bool) -> None:
    assert run.is_loopback(host) is loopback


def test_others_need_a_token(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="can be reached by others: give a --token-file"):
        run.run(Settings(data=tmp_path, host="0.0.0.0"), lambda _: None)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_has_one_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock = run.claim(tmp_path)
    assert command(["serve", "--port", "0", "--data", str(tmp_path)]) == 2
    assert "another server uses" in capsys.readouterr().err
    import os

    os.close(lock)
    os.close(run.claim(tmp_path))


def test_the_key_stays(tmp_path: Path) -> None:
    key = run.key_of(tmp_path)
    assert (len(key), run.key_of(tmp_path)) == (32, key)
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    (tmp_path / "key").write_bytes(b"short")
    assert run.key_of(tmp_path) != key


def test_an_address_that_is_taken(tmp_path: Path) -> None:
    with run.listening("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(InputError, match=f"cannot listen on 127.0.0.1 port {port}"):
            run.listening("127.0.0.1", port)
    with pytest.raises(InputError, match="cannot listen on"):
        run.listening("host.invalid", 1)
    assert run.url("::1", 80) == "http://[::1]:80/"


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot keep results in"):
        run.claim(tmp_path / "file" / "data")


def _damaged(path: Path) -> None:
    store = Store(path)
    for number in range(200):
        store.add(f"{number:016}", "text", "a title" * 20, "pasted text", 1, "json", "")
    store.close()
    data = bytearray(path.read_bytes())
    data[4096 * 2 : 4096 * 8] = random.Random(7).randbytes(4096 * 6)
    path.write_bytes(data)


def _no_database(path: Path) -> None:
    path.write_bytes(b"a log, which somebody put here\n" * 200)


def _of_another_program(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE diagnoses (patient TEXT)")


@pytest.mark.parametrize("spoil", [_damaged, _no_database, _of_another_program])
@pytest.mark.slow
def test_results_that_cannot_be_read_end_it_in_one_line(
    tmp_path: Path, spoil: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "diagnoses.sqlite"
    spoil(path)
    before = path.read_bytes()
    assert command(["serve", "--port", "0", "--data", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"diagnose: {path}: damaged, or not of diagnose (")
    assert "move it away" in err
    assert path.read_bytes() == before


@pytest.mark.slow
def test_a_full_disk_at_the_start_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(_: Store) -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    monkeypatch.setattr(Store, "requeue", full)
    assert command(["serve", "--port", "0", "--data", str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert err.endswith("(database or disk is full): is the disk full?\n")


@pytest.mark.slow
def test_results_that_are_damaged_later_are_told(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        server.served.store._db.rows("DROP TABLE outputs")
        server.served.store._db.rows("ALTER TABLE diagnoses RENAME TO gone")
        reply = server.http.get(f"{API}/abc")
        assert (reply.status_code, reply.json()["error"]["code"]) == (500, "store")


def test_without_the_extra_it_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['uvicorn'] = None; from diagnose.cli.main import run;"
        " sys.exit(run(['serve']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 2
    assert re.fullmatch(
        r"diagnose: serve needs uvicorn: pip install '.*'starlette>=.*'uvicorn>=.*\n", done.stderr
    )


@pytest.mark.slow
def test_the_command_serves_and_ends_on_a_signal(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "diagnose", "serve", "--port", "0", "--data", tmp_path / "data"],
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stderr is not None
    found = re.fullmatch(r"diagnose serve: (http://127\.0\.0\.1:\d+)/\n", process.stderr.readline())
    assert found is not None
    asked = urllib.request.Request(
        f"{found[1]}{API}?wait=60", LOG.encode(), {"Content-Type": "text/plain"}
    )
    with urllib.request.urlopen(asked, timeout=60) as reply:
        assert json.load(reply)["verdict"] == "hung"
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) in (0, -signal.SIGTERM)
    assert process.stderr.read() == ""
    process.stderr.close()
    assert {path.name for path in (tmp_path / "data").iterdir()} == {
        "diagnoses.sqlite", "key", "lock", "spool",
    }  # fmt: skip
    assert list((tmp_path / "data" / "spool").iterdir()) == []
