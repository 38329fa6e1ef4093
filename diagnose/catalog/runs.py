"""What a remedy gives to copy: its form in YAML and in the schema, and what is filled in.

The words in <angle brackets> stand for what only the job, or only the user, knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from diagnose.catalog.schema import RunKind
from diagnose.lazy import expression


class FieldError(Exception):
    """What is wrong with a part of an entry, and where it is in the entry."""

    def __init__(self, at: Sequence[str | int], problem: str) -> None:
        super().__init__(problem)
        self.at = at


def type_runs(item: dict[str, Any]) -> None:
    """Write `{shell: text}` as `{kind: shell, lines: [text]}`; what is no such mapping stays."""
    for number, remedy in enumerate(_list(item.get("remedies"))):
        runs = _list(remedy.get("run")) if isinstance(remedy, dict) else []
        for index, run in enumerate(runs):
            if isinstance(run, dict):
                runs[index] = typed_run(run, ["remedies", number, "run", index])
    places = _list(item.get("places"))
    for number, place in enumerate(places):
        if isinstance(place, dict):
            own = {key: place[key] for key in ("reference", "unless") if key in place}
            run = {key: value for key, value in place.items() if key not in own}
            places[number] = {"run": typed_run(run, ["places", number]), **own}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def typed_run(run: dict[str, Any], at: Sequence[str | int]) -> dict[str, Any]:
    """A run as YAML writes it (the kind is the key), in the form of the schema.

    `at` is where it stands. Raises FieldError.
    """
    kinds = [kind for kind in get_args(RunKind) if kind in run]
    if len(kinds) != 1:
        raise FieldError(at, "run: needs exactly one of shell, python, setting and note")
    for key in run:
        if key not in (kinds[0], "framework", "file"):
            raise FieldError([*at, key], f"run: {key}: unknown key")
    text = run[kinds[0]]
    if text in ("", []):
        raise FieldError([*at, kinds[0]], f"run: {kinds[0]}: is empty")
    rest = {key: value for key, value in run.items() if key != kinds[0]}
    return {"kind": kinds[0], "lines": [text] if isinstance(text, str) else text, **rest}


# What each stands for. Those of the first group are filled in where the diagnosis knows them.
PLACEHOLDERS: dict[str, str] = {
    "node": "the host to blame",
    "nodes": "the hosts to blame, joined by commas",
    "rank": "the rank to blame",
    "gpu": "the GPU: its index or its PCI bus id",
    "nic": "the adapter that the message names, such as mlx5_0",
    "peer": "the host at the other end of the connection",
    "port": "the TCP port",
    "path": "the file or folder that the message names",
    "world_size": "the number of ranks",
    "frame": "the file and line where the program raised the exception",
    "pid": "the id of the process: of the culprit, where one is collected",
    "pod": "the pod to blame",
    "pids": "the ids of the ranks' processes on the node, joined by commas",
    # ---- only the user knows
    "address": "the IP address of a host",
    "arch": "the compute capability of the GPUs, such as 9.0",
    "bytes": "a number of bytes",
    "checkpoint": "a checkpoint",
    "command": "the command that starts the job",
    "container": "a number, different for each container of a host",
    "dataset": "a dataset",
    "dir": "the folder of the checkpoints or of the data",
    "disk": "a block device, such as nvme0n1",
    "double": "twice the number used now",
    "file": "a file",
    "gpus": "the number of GPUs of a node",
    "half": "half the number used now",
    "head": "the host of rank 0 or of the head node",
    "host": "a host",
    "image": "a container image",
    "interface": "a network interface, such as eth0",
    "job": "the id of the job",
    "larger": "more than now",
    "minutes": "a number of minutes",
    "mirror": "the host of a mirror",
    "model": "a model",
    "name": "a name",
    "number": "a number",
    "nics": "the adapters to use, joined by commas",
    "npu": "the index of the NPU",
    "option": "an option",
    "output_dir": "a folder to write to",
    "package": "a Python package",
    "proxy": "the address of a proxy",
    "repo": "a repository of the hub",
    "seconds": "a number of seconds",
    "shared_dir": "a folder that every node sees",
    "smaller": "less than now",
    "step": "a training step",
    "subnet": "the network of the compute nodes, such as 10.0.0.0/16",
    "template": "the chat template used in training",
    "time": "a date and time",
    "token": "a token",
    "url": "a URL",
    "user": "a user",
    "version": "a version",
}

_NAME = expression(r"<([A-Za-z][^<>|\n]*)>")
# Values come from logs: only what means the same inside and outside of quotes is filled in.
_PLAIN = expression(r"[A-Za-z0-9/][A-Za-z0-9._:/,+-]{0,200}")


def placeholders_in(text: str) -> list[str]:
    """The placeholders in a text, known or not."""
    return _NAME.findall(text)


def example(text: str) -> str:
    """The text with a harmless word for every placeholder, so that it can be parsed."""
    return _NAME.sub("word", text)


def fill(text: str, values: Mapping[str, str]) -> str:
    """The text with the known placeholders filled in; a value that is no plain word is not used."""

    def one(match: re.Match[str]) -> str:
        value = values.get(match[1], "")
        return value if _PLAIN.fullmatch(value) else match[0]

    return _NAME.sub(one, text)


def unknown(text: str) -> Iterator[str]:
    """Placeholders that are not in the list."""
    return (name for name in placeholders_in(text) if name not in PLACEHOLDERS)
