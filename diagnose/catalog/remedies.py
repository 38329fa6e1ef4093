"""What a remedy gives to copy: its form in YAML, what is filled in, and the rules for it.

What is copyable runs as it stands and does no harm by surprise. Nothing is executed: bash parses
shell text without running it, Python text is only compiled. The words in <angle brackets> stand for
what only the job, or only the user, knows.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import warnings
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, get_args

from diagnose.catalog.schema import (
    Catalog,
    CauseClass,
    KnownIssue,
    Remedy,
    Run,
    RunKind,
    Setting,
    Signature,
)
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
    "job": "the id of the job, as Slurm states it",
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


_ADMIN = expression(
    r"""(?x) (?:^|[;&|(]\s*|\bsudo\s+) (?:
      systemctl\s+(?:start|stop|restart|enable|disable|mask|daemon-reload) | modprobe | rmmod
    | sysctl\s+-w | mount\s+-o | umount | ip\s+link\s+set | firewall-cmd | iptables\s+-[ADI]
    | reboot | shutdown | poweroff | ipmitool | setpci | grubby | update-initramfs | update-grub
    | mlxfwreset | mstflint | smartctl | nvme | apt-get | apt-mark | dnf | yum
    | nvidia-smi\s.*(?:--gpu-reset|\s-r\b|\s-c\s|\s-pm\s|\s-mig\s) | nvidia-bug-report\.sh
    | nvidia-ctk\s+(?:runtime|system) | rocm-smi\s.*--gpureset | amd-smi\s+reset
    | npu-smi\s+set | scontrol\s+(?:update|reboot|reconfigure)
    | kubectl\s+(?:cordon|uncordon|drain|taint) | dkms\s+(?:install|build|remove)
    ) (?![\w-])"""
)
_CHANGES = expression(
    r"""(?x) (?:^|[;&|(]\s*|\bsudo\s+) (?:
      (?:\w+=\S*\s+)*(?:pip|conda|uv\s+pip)\s+(?:install|uninstall|update) | rm | mv | rmdir | tee
    | kill | pkill | killall | scancel | mount\s+[^|] | umount | fusermount
    | scontrol\s+(?:requeue|hold|release) | ray\s+(?:stop|start) | docker\s+(?:run|rm|stop|kill)
    | kubectl\s+(?:delete|apply|create|patch|scale|label|annotate) | ssh-copy-id
    | find\s.*-delete | fio | dd\s.*of= | make
    ) (?![\w-])"""
)
_LOOKS = expression(
    r"(?:^|[;&|(]\s*)(?:ipmitool\s+(?:sel|sdr)|mstflint\s+-d\s+\S+\s+q|smartctl\s+-a"
    r"|nvme\s+smart-log|nvidia-bug-report\.sh)(?![\w-])"
)
_POWER = expression(r"\b(?:reboot|shutdown|poweroff|halt)\b|\bpower\s+(?:cycle|off|reset)\b")
_QUOTED = expression(r"""'[^']*'|"(?:[^"\\]|\\.)*\"""")
_POWERED = expression(r"last\s+-x\b[^;|&]*")  # only reads when there was one
_DESTROYS = expression(r"(?:^|[;&|(]\s*)rm\s|-delete\b|kubectl\s+delete|docker\s+rm\b")

# Text that no remedy has, and why. `file_system` has an exception of its own.
_DENIED: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (expression(text), why)
    for text, why in (
        (
            r"\brm\s+-\w*r\w*\s[^;&|\n]*(?:\$\(|`|\$[A-Za-z_]|\$\{\w+\})",
            "rm -r of what may be empty",
        ),
        (r"\bpgrep\b[^;\n]*;\s*rm\b", "rm runs whatever pgrep says"),
        (r"\bibdiagnet\b.*\s--?pc\b|\bperfquery\b.*\s-[a-zA-Z]*[rR]", "clears the port counters"),
        (r"\bdmesg\b.*\s(?:-[cC]\b|--(?:read-)?clear)|\bsel\s+clear\b|--vacuum", "clears a log"),
        (r"--reset-ecc-errors|\bnvidia-smi\s+-p\b", "clears the error counts of the GPU"),
        (r"weights_only\s*=\s*False", "runs code that is in the file"),
        (r"\bkill\s+-(?:9|KILL|s\s*KILL)\s+(?:-1\b|\$\(|`)", "kills more than it names"),
        (r"\b(?:pkill|killall)\b", "kills more than it names"),
        (r"--(?:extra-)?index-url|download\.pytorch\.org/whl", "pins an index of packages"),
        (r"\b(?:scontrol|scancel|kubectl)\s[^;&|\n]*(?:\$\(|`)", "acts on what may be empty"),
        (r"\bkubectl\s+drain\b", "evicts the pods of others; cordon keeps new ones off"),
        (r"\bgit\+https?://(?![^\s\"']+@v?\d)", "installs whatever the repository holds today"),
        (r"\bcurl\b.*\|\s*(?:sudo\s+)?(?:ba)?sh\b", "runs what it downloads"),
        (r"(?<!>)>\s*/etc/", "replaces a system file"),
        (r"\bunset\s+LD_LIBRARY_PATH\b", "drops network plugins and MPI too"),
        (r"\bpip\s+install\b.*\s[\"']?torch(?![\w\[.-])", "replaces torch"),
        (r"\bmkfs\b|\bof=/dev/(?!null)", "overwrites a device"),
    )
)
_REINSTALL = expression(r"--force-reinstall")
_FILE_SYSTEM = expression(r"set_sharing_strategy\(.file_system")
_ATTACHES = expression(r"\bpy-spy\s+(?:dump|record|top)\b|\bgdb\s+-p\b")
_ELLIPSIS = expression(r"(?:^|\s)(?:\.\.\.|…)(?:\s|$)")

_SETTING_ID = expression(r"[a-z]+(?:-[a-z]+)*\Z")
_REFERENCE = expression(r"https?://\S+\Z")

_PARSE = """while IFS= read -r -d '' text; do
  if ( eval "set -n"$'\\n'"$text" ) 2>/dev/null; then echo yes; else echo no; fi
done"""


def remedy_problems(catalog: Catalog, settings: Set[str] = frozenset()) -> Iterator[str]:
    """What is wrong with the remedies of all entries and classes, and with the settings.

    `settings` are ids of other catalogs, which remedies may name too.
    """
    entries: list[Signature | KnownIssue | CauseClass]
    entries = [*catalog.signatures, *catalog.known_issues, *catalog.classes.values()]
    steps = [(f"{entry.id}: remedies", step) for entry in entries for step in entry.remedies]
    named = {step.setting for _, step in steps}
    for name, step in steps:
        if step.setting and step.setting not in catalog.settings.keys() | settings:
            yield f"{name}: setting: unknown setting {step.setting}"
        if step.setting and any(run.framework for run in step.run):
            yield f"{name}: run: what is for one framework is a place of {step.setting}"
    yield from _waits_for_nothing(entries, catalog)
    for setting in catalog.settings.values():
        yield from setting_problems(setting, named | settings)
        steps.append(
            (setting.id, Remedy("fix", setting.about, run=[p.run for p in setting.places]))
        )
    for name, step in steps:
        yield from (f"{name}: {line}" for line in _remedy(step))
    yield from _shell_problems(steps)


def _waits_for_nothing(
    entries: Sequence[Signature | KnownIssue | CauseClass], catalog: Catalog
) -> Iterator[str]:
    """Steps that let ranks wait longer where the class says that it does not help."""
    lengthens = {setting.id for setting in catalog.settings.values() if setting.lengthens}
    for entry in entries:
        cause = entry if isinstance(entry, CauseClass) else catalog.classes.get(entry.cause or "")
        if cause is not None and cause.longer_timeout == "no":
            for step in entry.remedies:
                if step.setting in lengthens:
                    yield f"{entry.id}: remedies: {step.setting}: does not help against {cause.id}"


def setting_problems(setting: Setting, named: Set[str]) -> Iterator[str]:
    """What is wrong with a setting; `named` are those that remedies name."""
    if not _SETTING_ID.match(setting.id):
        yield f"{setting.id}: ids of settings are words joined by hyphens"
    if setting.id not in named:
        yield f"{setting.id}: no remedy names this setting"
    seen: list[tuple[str, list[str]]] = []
    for place in setting.places:
        framework = place.run.framework
        if not _REFERENCE.match(place.reference):
            yield f"{setting.id}: {framework}: reference: {place.reference} is not a URL"
        if (framework, place.run.lines) in seen:
            yield f"{setting.id}: {framework}: is there twice"
        seen.append((framework, place.run.lines))


def _shell_problems(steps: Sequence[tuple[str, Remedy]]) -> Iterator[str]:
    shell = [
        (name, "\n".join(run.lines))
        for name, step in steps
        for run in step.run
        if run.kind == "shell"
    ]
    for (name, text), parses in zip(shell, parsed([text for _, text in shell]), strict=True):
        if not parses:
            yield f"{name}: bash cannot parse: {_short(text)}"


def parsed(texts: Sequence[str]) -> list[bool]:
    """Whether bash can parse each text, placeholders aside. One process; nothing is executed."""
    bash = shutil.which("bash")
    if bash is None:
        return [True] * len(texts)  # no shell to ask
    data = b"".join(example(text).replace("\0", "").encode() + b"\0" for text in texts)
    done = subprocess.run(
        [bash, "--norc", "-c", _PARSE], input=data, capture_output=True, env={}, check=True
    )
    return [answer == b"yes" for answer in done.stdout.split()]


def _remedy(remedy: Remedy) -> Iterator[str]:
    for run in remedy.run:
        text = "\n".join(run.lines)
        short = _short(text)
        yield from (f"unknown placeholder <{name}>: {short}" for name in unknown(text))
        if run.kind == "note":
            continue
        for pattern, why in _DENIED:
            if pattern.search(text):
                yield f"{why}: {short}"
        if _REINSTALL.search(text) and "--no-deps" not in text:
            yield f"--force-reinstall without --no-deps replaces torch: {short}"
        if _FILE_SYSTEM.search(text) and "open files" not in remedy.do + remedy.why:
            yield f"file_system uses /dev/shm too, it only saves open files: {short}"
        if run.kind == "python":
            yield from _python(text)
        if run.kind == "shell":
            yield from _shell(run, remedy)


def _python(text: str) -> Iterator[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ast.parse(example(text))
        except SyntaxError as error:
            yield f"not Python ({error.msg}): {_short(text)}"


def _shell(run: Run, remedy: Remedy) -> Iterator[str]:
    text = "\n".join(run.lines)
    short = _short(text)
    if _ATTACHES.search(text) and "SYS_PTRACE" not in remedy.do + remedy.why:
        yield f"say that a container needs SYS_PTRACE: {short}"
    if any(_ELLIPSIS.search(line) for line in run.lines):
        yield f"does not run with ... in it: {short}"
    # What is quoted is no command, but for a remote shell.
    lines = [line if "ssh " in line else _QUOTED.sub("''", line) for line in run.lines]
    bare = _POWERED.sub("", "\n".join(lines))
    if _POWER.search(bare) and (len(lines) > 1 or re.search(r"[;&|]", bare)):
        yield f"a reboot or power cycle stands alone: {short}"
    admin = any(_ADMIN.search(line) for line in lines)
    looks = [_LOOKS.sub("", line) for line in lines]
    changes = any(_ADMIN.search(line) or _CHANGES.search(line) for line in looks)
    if admin and remedy.needs != "admin":
        yield f"needs: admin is missing: {short}"
    if changes and remedy.risk == "read_only":
        yield f"risk is missing, it changes something: {short}"
    if _DESTROYS.search(text) and remedy.risk != "destructive":
        yield f"risk: destructive is missing: {short}"


def _short(text: str) -> str:
    return text.replace("\n", "; ")[:120]
