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
from functools import cache
from pathlib import Path
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
    return (name for name in placeholders_in(text) if name not in _rules()["placeholders"])


@cache
def _rules() -> dict[str, Any]:
    """What remedies may hold, which only a check of them asks."""
    import yaml  # noqa: PLC0415  not for what is compiled

    path = Path(__file__).parents[1] / "formats" / "remedies.yaml"
    found: dict[str, Any] = yaml.safe_load(path.read_bytes())
    return found


@cache
def _commands(kind: str) -> re.Pattern[str]:
    """Where a line begins a command of a kind; one that only looks is to stand there itself."""
    before = r"^|[;&|(]\s*" if kind == "looks" else r"^|[;&|(]\s*|\bsudo\s+"
    return re.compile(rf"(?:{before})(?:{'|'.join(_rules()[kind])})(?![\w-])")


_POWER = expression(r"\b(?:reboot|shutdown|poweroff|halt)\b|\bpower\s+(?:cycle|off|reset)\b")
_QUOTED = expression(r"""'[^']*'|"(?:[^"\\]|\\.)*\"""")
_POWERED = expression(r"last\s+-x\b[^;|&]*")  # only reads when there was one
_DESTROYS = expression(r"(?:^|[;&|(]\s*)rm\s|-delete\b|kubectl\s+delete|docker\s+rm\b")

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
        for row in _rules()["denied"]:
            around = f"{text} {remedy.do} {remedy.why}"
            if re.search(row["text"], text) and not ("unless" in row and row["unless"] in around):
                yield f"{row['why']}: {short}"
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
    if any(_ELLIPSIS.search(line) for line in run.lines):
        yield f"does not run with ... in it: {short}"
    # What is quoted is no command, but for a remote shell.
    lines = [line if "ssh " in line else _QUOTED.sub("''", line) for line in run.lines]
    bare = _POWERED.sub("", "\n".join(lines))
    if _POWER.search(bare) and (len(lines) > 1 or re.search(r"[;&|]", bare)):
        yield f"a reboot or power cycle stands alone: {short}"
    admin = any(_commands("admin").search(line) for line in lines)
    rest = [_commands("looks").sub("", line) for line in lines]
    changes = any(_commands(kind).search(line) for line in rest for kind in ("admin", "changes"))
    if admin and remedy.needs != "admin":
        yield f"needs: admin is missing: {short}"
    if changes and remedy.risk == "read_only":
        yield f"risk is missing, it changes something: {short}"
    if _DESTROYS.search(text) and remedy.risk != "destructive":
        yield f"risk: destructive is missing: {short}"


def _short(text: str) -> str:
    return text.replace("\n", "; ")[:120]
