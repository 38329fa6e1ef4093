"""Every block of shell commands in the pages, word for word from a fresh clone.

What a test cannot have has a stand-in: package indexes, clusters, buckets, the network, and
commands that serve or follow until somebody ends them. A stand-in of `diagnose` still checks every
option, one of `pip` that what is installed is in the clone and has these extras.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from diagnose.cli.main import _COMMANDS
from tests.checkpoint.make.hf import trainer

ROOT = Path(__file__).parents[1]
PAGES = (
    "README.md", "CONTRIBUTING.md", *sorted(f"docs/{path.name}" for path in ROOT.glob("docs/*.md")),
    "skills/diagnose-hang/SKILL.md",
)  # fmt: skip
_BLOCK = re.compile(r"^( *)```sh\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)

_DIAGNOSE = """\
#!{python}
import os, re, sys
there = re.compile(r"^(s3:/|(?=/(archive|data|var|srv|shared)/))")
given = [there.sub("{away}", one) for one in sys.argv[1:]]
endless = given[:1] and given[0] in ("collect", "serve", "mcp", "watch") or "dask" in given
os.environ["PYTHONPATH"] = "{clone}"
given += ["--help"] if endless else []
os.execv(sys.executable, [sys.executable, "-m", "diagnose", *given])
"""
_PIP = """\
#!{python}
import os, re, sys, tomllib
for one in sys.argv[1:]:
    found = re.fullmatch(r"\\.(\\[(.*)\\])?", one)
    if found:
        extras = tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]
        assert set(filter(None, (found[2] or "").split(","))) <= set(extras), one
    assert "diagnose-hangs" not in one, one  # which no index has yet
"""
_PYTHON = """\
#!{python}
import os, pathlib, sys
asked = sys.argv[1:]
if asked[:2] == ["-m", "venv"]:
    folder = pathlib.Path(asked[2], "bin")
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("pip", "diagnose", "python"):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to("{bin}/" + name)
elif asked[:2] == ["-m", "pytest"]:
    pass
elif asked[:2] == ["-m", "benchmarks.hangbench"]:
    assert os.path.isdir("benchmarks/hangbench")
elif asked[0].startswith("tools/"):
    assert os.path.exists(asked[0])
else:
    os.execv(sys.executable, [sys.executable, *asked])
"""
_ELSEWHERE = "#!/bin/sh\n[ -t 0 ] || timeout 1 cat >/dev/null\nexit 0\n"
_IBNETDISCOVER = """\
#!/bin/sh
cat <<'END'
Switch\t36 "S-0000000000000001"\t\t# "MF0;leaf1:MQM8700/U1" enhanced port 0 lid 1 lmc 0
[1]\t"H-000000000000000a"[1](a) \t\t# "gpu2 mlx5_0" lid 7 4xHDR
[2]\t"H-000000000000000b"[1](b) \t\t# "gpu3 mlx5_0" lid 8 4xHDR
Switch\t36 "S-0000000000000002"\t\t# "MF0;leaf2:MQM8700/U1" enhanced port 0 lid 2 lmc 0
[1]\t"H-0000000000000014"[1](14) \t\t# "gpu4 mlx5_0" lid 7 4xHDR
[2]\t"H-0000000000000015"[1](15) \t\t# "gpu5 mlx5_0" lid 8 4xHDR
END
"""
_KUBECTL = "#!/bin/sh\ncat fixtures/torchrun-missing-rank/console.log\n"


def blocks() -> list[tuple[str, str]]:
    """Where each block is, and its commands."""
    found = []
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        for number, block in enumerate(_BLOCK.finditer(text), 1):
            found.append((f"{page}-{number}", block[2].replace(f"\n{block[1]}", "\n")))
    return found


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A fresh clone with what the pages take for granted: a job's logs, checkpoints, a token."""
    folder = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", "--shared", ROOT, folder], check=True)
    log = folder / "fixtures" / "torchrun-missing-rank" / "console.log"
    (folder / "logs").mkdir()
    for name in ("logs/rank0.log", "slurm-81922.out", "dmesg.txt", "slurm.out", "bundle.tar.zst"):
        shutil.copy(log, folder / name)
    trainer(folder / "out" / "step-4000", step=4000, world=2, start=1e9, max_steps=9000)
    away = tmp_path / "away"
    for name in ("archive/jobs", "logs/training", "var/log/slurm/jobs", "data/jobs"):
        (away / name).mkdir(parents=True)
        shutil.copy(log, away / name / "slurm-7.out")
    (away / "var" / "lib" / "node_exporter").mkdir(parents=True)
    shutil.copytree(folder / "out", away / "bucket" / "run", symlinks=True)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(("where", "commands"), blocks(), ids=[where for where, _ in blocks()])
def test_every_block_of_commands_works_from_a_fresh_clone(
    where: str, commands: str, clone: Path, tmp_path: Path
) -> None:
    stand_ins = tmp_path / "bin"
    stand_ins.mkdir()
    known = {"diagnose": _DIAGNOSE, "pip": _PIP, "python": _PYTHON, "python3": _PYTHON}
    known |= {"kubectl": _KUBECTL, "ibnetdiscover": _IBNETDISCOVER}
    known |= dict.fromkeys(("curl", "gh", "claude", "codex", "sinfo", "jq", "git"), _ELSEWHERE)
    values = {"python": sys.executable, "away": tmp_path / "away", "bin": stand_ins, "clone": clone}
    for name, text in known.items():
        filled = re.sub(r"\{(python|away|bin|clone)\}", lambda mark: str(values[mark[1]]), text)
        (stand_ins / name).write_text(filled)
        (stand_ins / name).chmod(0o755)
    # each page keeps its own memory, in the home that it gets
    own = ("PYTEST", "DIAGNOSE_MEMORY", "XDG_DATA_HOME")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    environment = inherited | {
        "PATH": f"{stand_ins}:{os.environ['PATH']}", "HOME": str(tmp_path / "home"),
        "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache"),
        "SLACK_WEBHOOK_URL": "https://hooks.example.org/x", "SLURM_JOB_ID": "81922",
    }  # fmt: skip
    with (clone / "slurm.out").open() as pasted:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", commands],
            cwd=clone, env=environment, stdin=pasted, capture_output=True, text=True,
            timeout=300, check=False,
        )  # fmt: skip
    assert done.returncode == 0, f"{where}\n{commands}\n{done.stderr[-2000:]}"


def test_no_page_installs_from_an_index_that_does_not_have_it() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    pages = [ROOT / page for page in PAGES] + [*ROOT.glob("contrib/*/*")]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert "pip install diagnose" not in text, page
        assert "diagnose-hangs[" not in text, page
        for found in re.finditer(r"'\.\[([a-z0-9,]+)\]'", text):
            assert set(found[1].split(",")) <= set(extras), (page, found[0])
    assert len(re.findall("not on PyPI", (ROOT / "README.md").read_text())) == 1


def test_the_pages_name_only_commands_that_there_are() -> None:
    for where, commands in blocks():
        for found in re.finditer(r"(?:^|[|;&(] *)diagnose ([a-z]+)", commands, re.MULTILINE):
            assert found[1] in _COMMANDS, (where, found[0])
