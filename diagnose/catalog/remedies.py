"""The rules for remedies: what is copyable runs as it stands and does no harm by surprise.

Nothing is executed: bash parses shell text without running it, Python text is only compiled.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import warnings
from collections.abc import Iterator, Sequence, Set

from diagnose.catalog.runs import example, unknown
from diagnose.catalog.schema import Catalog, CauseClass, KnownIssue, Remedy, Run, Setting, Signature

_ADMIN = re.compile(
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
_CHANGES = re.compile(
    r"""(?x) (?:^|[;&|(]\s*|\bsudo\s+) (?:
      (?:\w+=\S*\s+)*(?:pip|conda|uv\s+pip)\s+(?:install|uninstall|update) | rm | mv | rmdir | tee
    | kill | pkill | killall | scancel | mount\s+[^|] | umount | fusermount
    | scontrol\s+(?:requeue|hold|release) | ray\s+(?:stop|start) | docker\s+(?:run|rm|stop|kill)
    | kubectl\s+(?:delete|apply|create|patch|scale|label|annotate) | ssh-copy-id
    | find\s.*-delete | fio | dd\s.*of= | make
    ) (?![\w-])"""
)
_LOOKS = re.compile(
    r"(?:^|[;&|(]\s*)(?:ipmitool\s+(?:sel|sdr)|mstflint\s+-d\s+\S+\s+q|smartctl\s+-a"
    r"|nvme\s+smart-log|nvidia-bug-report\.sh)(?![\w-])"
)
_POWER = re.compile(r"\b(?:reboot|shutdown|poweroff|halt)\b|\bpower\s+(?:cycle|off|reset)\b")
_QUOTED = re.compile(r"""'[^']*'|"(?:[^"\\]|\\.)*\"""")
_POWERED = re.compile(r"last\s+-x\b[^;|&]*")  # only reads when there was one
_DESTROYS = re.compile(r"(?:^|[;&|(]\s*)rm\s|-delete\b|kubectl\s+delete|docker\s+rm\b")

# Text that no remedy has, and why. `file_system` has an exception of its own.
_DENIED: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(expression), why)
    for expression, why in (
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
_REINSTALL = re.compile(r"--force-reinstall")
_FILE_SYSTEM = re.compile(r"set_sharing_strategy\(.file_system")
_ATTACHES = re.compile(r"\bpy-spy\s+(?:dump|record|top)\b|\bgdb\s+-p\b")
_ELLIPSIS = re.compile(r"(?:^|\s)(?:\.\.\.|…)(?:\s|$)")

_SETTING_ID = re.compile(r"[a-z]+(?:-[a-z]+)*\Z")
_REFERENCE = re.compile(r"https?://\S+\Z")

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
