"""No secret of the corpus is in a bundle, wherever it stood: environment, command line, stacks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from diagnose.collect import node, processes
from diagnose.collect.bundle import Process, Sink
from diagnose.collect.find import Found, Seen, find
from tests.collect.machines import Machine
from tests.report.corpus import PEOPLE, SECRETS, values
from tests.report.test_secrets_in_outputs import unseen

KINDS = [(line, values(line, redacted)) for line, redacted in SECRETS]


def written(folder: Path) -> str:
    texts = [path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()]
    # A document as its reader sees it.
    return "\n".join(texts + [str(json.loads(text)) for text in texts if text.startswith("{")])


@pytest.mark.parametrize("part", range(8))
def test_every_kind_of_secret_everywhere(tmp_path: Path, part: int) -> None:
    for number, (line, found) in enumerate(KINDS[part::8]):
        if not set(found.values()) - PEOPLE:
            continue
        name, _, value = line.partition("=")
        env = {"RANK": "0", "WORLD_SIZE": "1", "NCCL_COMMENT": line, "UNRELATED": line}
        if name.isidentifier():
            env[f"SLURM_{name}"] = value
            env[name] = value
        words = ["python", "train.py", *line.split(" ")]
        one = Process(20, "rank", rank=0, command=" ".join(words))
        seen = Found([one], {20: Seen(20, 1, "python", 0, words, env)})
        out = tmp_path / f"out{number}"
        sink = Sink(out, node._redactor(seen), 1 << 20)
        processes.identify(sink, seen.processes[0], seen)
        frame = f"    load (/data/{line}/train.py:3)\n" if "\n" not in line else ""
        sink.text("stack-1.txt", f"Process 20: python train.py {line}\n{frame}{line}\n")
        seen.processes[0].command = sink.one_line(seen.processes[0].command, 2000)
        sink.json("node.json", {"processes": [seen.processes[0].command], "problem": line})
        unseen(written(out), found)


def test_a_secret_of_the_environment_is_known_wherever_it_stands(
    machine: Machine, tmp_path: Path
) -> None:
    """The value looks like nothing; the name of its variable says what it is."""
    machine.process(20, env="RANK=0 DB_PASSWORD=Gq7tZx91LmPw MASTER_ADDR=node1")
    seen = find()
    sink = Sink(tmp_path / "out", node._redactor(seen), 1 << 20)
    sink.text("stack-1.txt", "    connect (/srv/Gq7tZx91LmPw/db.py:3)")
    processes.identify(sink, seen.processes[0], seen)
    assert "Gq7t" not in written(tmp_path / "out")
    about = json.loads((tmp_path / "out" / "process.json").read_text())
    assert about["environment"] == {"MASTER_ADDR": "node1", "RANK": "0"}
