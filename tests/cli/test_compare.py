"""`diagnose compare`: two runs by their paths or their ids, as text, JSON and a page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from diagnose.cli import main as cli
from tests.compare.runs import log
from tests.test_schemas import check

GIVEN = ("torch==2.5.1", "NCCL_IB_HCA=mlx5_0", "train.py --lr 0.1 --bf16")
BAD = ("torch==2.6.0", "NCCL_IB_HCA=mlx5_0", "train.py --lr 0.1 --bf16")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with both runs, in which the command runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "good.log").write_text(log(1))
    (tmp_path / "bad.log").write_text(log(2, given=BAD, late=["loader [b]waits[/b] for shard 7"]))
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = cli.run(["compare", *arguments])
    out, err = capsys.readouterr()
    return status, out, err


def test_what_is_printed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "good.log", "bad.log") == (
        0,
        """\
COMPARE  2 differences, the most telling first

  good run    good.log: running, step 40, 91 lines
  bad run     bad.log: running, step 40, 92 lines

  1  version of torch: 2.5.1 → 2.6.0  (bad: bad.log:2)
  2  new line of rank 1: loader [b]waits[/b] for shard 7  (bad: bad.log:89)
""",
        "",
    )


def test_runs_that_do_not_differ(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "bad.log").write_text(log(2))
    status, out, _ = run(capsys, "good.log", "bad.log")
    assert (status, out.splitlines()[0]) == (
        0, "COMPARE  Nothing that these logs show differs between the two runs",
    )  # fmt: skip


def test_json_is_of_the_schema(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "good.log", "bad.log", "--format", "json")
    check("compare-1.json", out)
    found = json.loads(out)
    assert [one["kind"] for one in found["differences"]] == ["version", "new"]
    assert found["differences"][0]["bad_at"] == {"source": "bad.log", "line": 2}


def test_the_page_holds_what_is_printed_and_nothing_hostile(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = log(2, given=BAD, late=["<script>alert(1)</script> in a line"])
    (folder / "bad.log").write_text(bad)
    _, _, err = run(capsys, "good.log", "bad.log", "--html", "page.html", "--title", "Night run")
    assert err == "wrote page.html\n"
    page = (folder / "page.html").read_text(encoding="utf-8")
    assert "version of torch" in page
    assert "Night run" in page
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "default-src &#39;none&#39;" in page


def test_secrets_are_masked_everywhere(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secrets = "hf_" + "q" * 34, "hunter2hunter2"
    for name, number, secret in (("good.log", 1, secrets[0]), ("bad.log", 2, secrets[1])):
        given = (
            *GIVEN,
            f"HF_AUTH={secret}",
            f"--db-password={secret}",
            f"logging in, token={secret}",
        )
        (folder / name).write_text(log(number, given=given))
    outputs = [run(capsys, "good.log", "bad.log", "--all")[1]]
    outputs += [run(capsys, "good.log", "bad.log", "--format", "json", "--html", "page.html")[1]]
    outputs += [(folder / "page.html").read_text(encoding="utf-8")]
    assert not [secret for secret in secrets[:1] for text in outputs if secret in text]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["good.log"], "two runs are needed: diagnose compare GOOD BAD, or"),
        (["a", "b", "c"], "two runs are needed"),
        (["good.log", "--last-good"], "--last-good needs --jobs RESULTS"),
        (["a", "b", "--last-good", "--jobs", "r"], "one run is needed"),
        (["good.log", "nowhere"], "no log to read: nowhere: no such file or directory"),
        (["good.log", ""], "the path is empty"),
        (["a", "b", "--jobs", "nowhere"], "nowhere/diagnose.sqlite does not exist"),
    ],
)
def test_wrong_input_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert err.startswith("diagnose: ")
    assert message in err
    assert err.count("\n") == 1


# --- jobs of a scan -------------------------------------------------------------------------------


@pytest.fixture
def scanned(folder: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """Results of five runs: three of one job, of which the last died, and two of others."""
    crash = (
        "Traceback (most recent call last):\n"
        '[rank0]:   File "/job/train.py", line 7, in <module>\n[rank0]: RuntimeError: no batch'
    )
    well = "Training completed. Do not forget to share your model on huggingface.co/models =)"
    runs = {
        "ann/llama-1": log(1, end=well), "ann/llama-2": log(2, end=well),
        "ann/llama-3": log(3, given=BAD, end=crash), "bob/llama-4": log(4, end=well),
        "ann/vit-2": log(2, end=well),
    }  # fmt: skip
    for name, text in runs.items():
        target = folder / "archive" / name / "console.log"
        target.parent.mkdir(parents=True)
        target.write_text(text)
    status = cli.run([
        "scan", "archive", "-o", "results", "--label", r"(?P<user>\w+)/[^/]+$", "--job-glob", "*/*",
        "--workers", "1",
    ])  # fmt: skip
    assert status == 0
    capsys.readouterr()
    return folder


def test_jobs_by_their_ids(scanned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "ann/llama-1", "ann/llama-3", "--jobs", "results")
    assert (status, err) == (0, "")
    assert "version of torch: 2.5.1 → 2.6.0" in out


@pytest.mark.slow
def test_the_last_good_run_of_the_same_job(
    scanned: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = run(capsys, "ann/llama-3", "--jobs", "results", "--last-good", "--format", "json")
    found = json.loads(out)
    assert (found["good"]["name"], found["bad"]["name"]) == ("ann/llama-2", "ann/llama-3")
    assert (found["good"]["verdict"], found["bad"]["verdict"]) == ("running", "failed")


def test_without_an_earlier_good_run_it_says_so(
    scanned: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = run(capsys, "ann/llama-1", "--jobs", "results", "--last-good")
    assert (status, "no earlier run of this job ended well" in err) == (2, True)


def test_an_unknown_id_gives_near_ones(scanned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capsys, "ann/llama-1", "ann/lama-3", "--jobs", "results")
    assert (status, "did you mean ann/llama-3" in err) == (2, True)
