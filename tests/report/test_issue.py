"""An issue for a project: what is asked for is there, or named with how to get it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import diagnose
from diagnose.errors import InputError
from diagnose.job.asked import projects
from diagnose.report import words
from diagnose.report.issue import LEAST, issue_text
from diagnose.report.markdown import LIMIT, escape, length

FIXTURES = Path(__file__).parents[2] / "fixtures"
LOG = """\
alice@login1:~$ torchrun --nnodes 2 /home/alice/secret/code/train.py
export HF_TOKEN=hf_{token}
gpu-017:71:71 [0] NCCL INFO NCCL version 2.27.3+cuda12.8
gpu-017:71:71 [0] NCCL INFO NET/Socket : Using [0]eth0:10.1.2.3<0>
gpu-017:71:71 [0] NCCL INFO NCCL_DEBUG set by environment to INFO
[rank1]:[E602 08:25:12.625 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective operation \
timeout: WorkNCCL(SeqNum=3, OpType=ALLREDUCE, NumelIn=9, NumelOut=9, Timeout(ms)=600000) ran for \
600377 milliseconds before timing out.
""".replace("{token}", "aBcDeFgHiJkLmNoPqRsTuVwXyZaBcDeFgH")


def _made(project: str, text: str = LOG, *, redact: bool = True, limit: int = LIMIT) -> str:
    job = diagnose.load_text(text)
    return issue_text(job, diagnose.diagnose(job), project, redact=redact, limit=limit)


def _sections(text: str) -> dict[str, str]:
    parts = re.split(r"^#### (.+)\n", text, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("project", projects())
def test_every_item_is_there_or_missing(project: str) -> None:
    asked = projects()[project]
    text = _made(project)
    sections = _sections(text)
    missing = sections["Missing, and how to get it"]
    for ask in asked.asks:
        heading = escape(ask.heading)
        assert heading in sections or f"- {heading}: `" in missing, heading
    for one in asked.questions:
        assert f"- [ ] {escape(one.ask)}" in sections["To answer by hand"]
    folded = text.partition("<details><summary>What they may ask next")[2]
    for ask in asked.later_asks:
        assert f"{escape(ask.heading)}\n" in text or f"- {escape(ask.heading)}: `" in folded
    for one in asked.later_questions:
        assert escape(one.ask) in text
    assert text.startswith("### Hung: ")
    assert "torchrun --nnodes 2" in text
    assert asked.open in text.splitlines()[-1]


def test_the_form_of_nccl() -> None:
    sections = _sections(_made("nccl"))
    assert [*sections][:5] == [
        "Error Message \\& Behavior", "NCCL Version", "Calls of all ranks at the hang",
        "Share Your Debug Logs", "Launch command",
    ]  # fmt: skip
    assert "rank 1: ALLREDUCE seq 3 of 9 elements" in sections["Calls of all ranks at the hang"]
    missing = sections["Missing, and how to get it"]
    assert "- Calls in NCCL's log: `export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,COLL" in missing
    assert "- Versions: cuda: `" in missing  # that of NCCL is in the log


def test_what_fits_the_cause_is_asked_before_what_always_is() -> None:
    job = diagnose.load([str(FIXTURES / "flight-recorder-mismatch")])
    text = issue_text(job, diagnose.diagnose(job), "pytorch")
    asked = re.findall(r"^- \[ \] (.+?\?)", text, flags=re.M)
    assert asked[0].startswith("Do all ranks make the same calls in the same order")
    assert asked[1].startswith("How is the model split")
    assert asked.index("Which line does each rank reach last?") < 4
    assert asked[-1].startswith("Does a plain all-reduce of ten lines run")


def test_nothing_of_the_house_leaves_it() -> None:
    text = _made("pytorch")
    for secret in ("alice", "login1", "gpu-017", "10.1.2.3", "aBcDeFgHiJkL", "secret/"):
        assert secret not in text, secret
    assert "[host-1]:71:71 [0] NCCL INFO NET/Socket : Using [0]eth0:[address-1]<0>" in text
    assert "masked; read it before you post it" in text
    bare = _made("pytorch", redact=False)
    assert "gpu-017:71:71" in bare
    assert "**not masked**; read it" in bare


def test_hosts_that_only_the_verdict_names_and_commands() -> None:
    job = diagnose.load([str(FIXTURES / "slurm-node-failure")])
    text = issue_text(job, diagnose.diagnose(job), "slurm")
    assert "node05" not in text
    assert '`scontrol show node "$(squeue -j $SLURM_JOB_ID -ho %N)"; sinfo -R`' in text
    assert "=/shared/fr/rank_" in _made("pytorch")


def test_a_secret_is_known_in_the_section_before_that_names_it() -> None:
    text = _made(
        "vllm", "+ vllm serve --key Zq7kLmN2pRsTvWx\nexport HF_SECRET=Zq7kLmN2pRsTvWx\n" + LOG
    )
    assert "Zq7kLmN2pRsT" not in text
    assert "+ vllm serve --key [" in text


@pytest.mark.slow
def test_it_is_never_too_long() -> None:
    lines = "".join(f"n1 kernel: NVRM: Xid ({n}): 79 {'é😀' * 200}\n" for n in range(200))
    calls = "".join(f"a: NCCL INFO AllReduce: opCount {n} {'x' * 600}\n" for n in range(99))
    for limit in (LEAST, 9_000, LIMIT):
        text = _made("nccl", LOG + lines + calls, limit=limit)
        assert length(text) <= limit
        assert text.count("```") % 2 == 0
        assert "To answer by hand" in text
    assert re.search(r"\*\d+ more lines left out\.\*", text)
    assert "*Left out, for lack of room in 6,000 characters: " in _made(
        "nccl", LOG + lines, limit=LEAST
    )


def test_log_text_stays_in_its_fence() -> None:
    text = _made("vllm", LOG + "+ vllm serve ``` </details> @org/team #12\n")
    fence = re.search(
        r"\n(`{4,})\n(?:.*\n)*?\+ vllm serve ``` </details> @org/team #12\n\1\n", text
    )
    assert fence is not None
    assert "@org" not in text.replace(fence[0], "")


@pytest.mark.parametrize(("project", "limit"), [("none", LIMIT), ("nccl", LEAST - 1)])
def test_what_cannot_be(project: str, limit: int) -> None:
    with pytest.raises(InputError, match=r"choose nccl, pytorch|at least 6,000"):
        _made(project, limit=limit)


def test_alike_stacks_are_there_once() -> None:
    job = diagnose.load([str(FIXTURES / "stacks-dataloader")])
    text = issue_text(job, diagnose.diagnose(job), "pytorch")
    stacks = _sections(text)["Stacks, one for ranks that are at the same place"]
    heads = re.findall(r"^ranks? [\d, -]+: ", stacks, flags=re.M)
    assert len(heads) == len({*heads}) == len(job.places)


@pytest.mark.parametrize(
    ("name", "missing", "question"),
    [
        ("torchrun-missing-rank", "Stacks, one for ranks", "Do all ranks make the same calls"),
        ("nccl-ib-retry-exceeded", "Kernel messages", "Does RDMA work between the nodes"),
        ("torchrun-cuda-oom", "State of the GPUs", "Are there processes, locks or caches"),
    ],
)
def test_what_fits_the_cause_is_asked_first(name: str, missing: str, question: str) -> None:
    job = diagnose.load([str(FIXTURES / name)])
    result = diagnose.diagnose(job)
    sections = _sections(issue_text(job, result, "sglang"))
    rows = re.findall(r"^- (.+)$", sections["Missing, and how to get it"], flags=re.M)
    above = {escape(words.capital(one.what)) for one in result.missing_evidence}
    assert all(row.startswith(tuple(above)) for row in rows[: len(above)])  # of the verdict itself
    asked = [row for row in rows[len(above) :] if not re.match(r"Versions: \w+(, \w+)*: ", row)]
    assert asked[0].startswith(missing)
    assert sections["To answer by hand"].strip().startswith(f"- [ ] {question}")
