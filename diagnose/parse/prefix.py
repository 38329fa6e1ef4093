"""Who wrote a line and when: peels the known prefixes off its front.

Prefixes stack, outside in: `<CRI time> stderr F [default3]:[rank11]:[E820 10:00:00.1 a.cpp:1] …`.
`peel` looks at the first character (or the second, behind a bracket) to choose the few families
that can start so, and repeats behind each prefix found. Every number keeps its kind.
"""

from __future__ import annotations

from collections.abc import Collection

from diagnose.parse.dated_prefixes import bare_date, bracket_date, bracket_time, named_date
from diagnose.parse.json_prefixes import json_line
from diagnose.parse.launcher_prefixes import (
    TAG_INITIALS,
    accelerate,
    braces,
    compose,
    composer,
    device,
    elapsed,
    host_pid,
    host_tag,
    hydra,
    kaggle,
    kubectl,
    label,
    mpi,
    mpi_xml,
    pdsh,
    rank_tag,
    ray,
    repeated,
    stern,
)
from diagnose.parse.logging_prefixes import (
    bracket_level,
    determined,
    hugectr,
    level_first,
    logfmt,
    nemo,
    plog,
)
from diagnose.parse.nccl_prefix import nccl
from diagnose.parse.path import grepped
from diagnose.parse.stamps import MONTHS, WEEKDAYS
from diagnose.parse.system_prefixes import (
    bracket_boot,
    bracket_named,
    facility,
    kmsg,
    month_first,
    priority,
    unix_time,
    weekday_first,
)
from diagnose.parse.torch_prefixes import c10, glog, in_group, rank, role
from diagnose.parse.who import Family, Prefix, Stamp

__all__ = ["Prefix", "Stamp", "peel"]

_LAYERS = 12  # prefixes stacked on one line; more is a hostile line
# What follows these is the message, whatever it looks like.
_INNERMOST = frozenset({"c10", "glog", "nccl", "dmesg", "kmsg"})

# By the character behind "[".
_BRACKETS: dict[str, tuple[Family, ...]] = {
    **dict.fromkeys(
        "0123456789", (determined, bracket_date, mpi, hydra, bracket_boot, bracket_time, host_tag)
    ),
    " ": (bracket_boot, bracket_level),
    "+": (elapsed,),
    "r": (rank, rank_tag, role, host_pid, host_tag),
    "R": (accelerate, rank_tag, role),
    **dict.fromkeys("gGlL", (rank_tag, device, role, mpi, host_pid, host_tag, named_date)),
    "p": (kubectl, mpi, role, host_pid, host_tag),
    "N": (plog, bracket_level, nemo, bracket_named, device, role),
    **dict.fromkeys("DEIC", (c10, plog, bracket_level, bracket_named, device, role)),
    **dict.fromkeys("FWTS", (c10, plog, bracket_level, bracket_named, role)),
    **dict.fromkeys("JMAO", (bracket_named, role, named_date)),
    "V": (c10, role),
    "H": (hugectr, role, mpi, host_pid),
}
_OTHER_BRACKETS: tuple[Family, ...] = (role, mpi, host_pid, host_tag, named_date)
_NUMBERS: tuple[Family, ...] = (bare_date, label, unix_time, kmsg, kaggle, nccl)
_LEVEL_INITIALS = frozenset("DIWECFNTS")
_GLOG_INITIALS = frozenset("DIWEFV")


def peel(line: str, hosts: Collection[str] = ()) -> Prefix:
    """Peel every known prefix off `line` (no newline), from the left until none matches.

    Expects clean text: escape codes and paste marks removed, split at carriage returns. `hosts`
    are names of the job's machines: with them, `name: ` of pdsh is recognised for names that do
    not look like a machine's. `message` is what remains, unchanged; decoded for JSON and XML
    records, and without Ray's "[repeated …]" at the end.
    """
    prefix = Prefix(message=line)
    at = 0
    for _ in range(_LAYERS):
        if at >= len(line):
            break
        first = line[at]
        if first == "{" and (message := json_line(line[at:], prefix)) is not None:
            line, at = message, 0
            continue
        end = _one(line, at, first, prefix, hosts)
        if end <= at:
            break
        at = end
        if prefix.names[-1] in _INNERMOST:
            break
    if at or prefix.names:
        prefix.message = line[at:]
        if "mpi-xml" in prefix.names:
            prefix.message = _xml_text(prefix)
    if prefix.message.startswith(("[Rank ", "[PG ")):
        prefix.group_rank = in_group(prefix.message)
    if "] " in prefix.message[-200:] or prefix.message.endswith("]"):
        prefix.message, prefix.repeated = repeated(prefix.message)
    return prefix


def _one(line: str, at: int, first: str, prefix: Prefix, hosts: Collection[str]) -> int:
    """The position behind the one prefix at `at`; not behind `at` if there is none."""
    if first == "[":
        for family in _BRACKETS.get(line[at + 1 : at + 2], _OTHER_BRACKETS):
            end = family(line, at, prefix)
            if end >= 0:
                return end
        return -1
    if first == "(":
        return max(ray(line, at, prefix), rank_tag(line, at, prefix))
    if first == "{":
        return braces(line, at, prefix)
    if first == " ":
        return _spaces(line, at, prefix)
    if first == "<":
        families = (priority, mpi_xml, determined, rank_tag)
        return max(family(line, at, prefix) for family in families)
    if first.isdigit():
        for family in _NUMBERS:
            end = family(line, at, prefix)
            if end >= 0:
                return end
        return max(pdsh(line, at, prefix, hosts), grepped(line, at, prefix))
    if first.isalpha():
        return _word(line, at, first, prefix, hosts)
    return max(nccl(line, at, prefix), grepped(line, at, prefix)) if first in "./" else -1


def _word(line: str, at: int, first: str, prefix: Prefix, hosts: Collection[str]) -> int:
    end = -1
    if first in _GLOG_INITIALS and line[at + 1 : at + 5].isdigit():
        end = glog(line, at, prefix)
    elif first in _LEVEL_INITIALS:
        end = level_first(line, at, prefix)
    if end < 0 and line.startswith(" ", at + 3):
        head = line[at : at + 3]
        if head in MONTHS:
            end = month_first(line, at, prefix)
        elif head in WEEKDAYS:
            end = weekday_first(line, at, prefix)
    if end < 0 and first in TAG_INITIALS:
        end = max(rank_tag(line, at, prefix), composer(line, at, prefix))
    if end < 0:
        end = nccl(line, at, prefix)
    if end < 0:
        end = pdsh(line, at, prefix, hosts)
    if end < 0 and first == "P":
        end = label(line, at, prefix)
    if end < 0 and not prefix.names:
        end = grepped(line, at, prefix)
        if end < 0 and first.islower():
            families = (facility, stern, compose, logfmt)
            end = max(family(line, at, prefix) for family in families)
    return end


def _spaces(line: str, at: int, prefix: Prefix) -> int:
    """Srun's right-aligned label, or Megatron's ` [2024-…] iteration`."""
    end = label(line, at, prefix)
    if end >= 0:
        return end
    bracket = line.find("[2", at, at + 8)
    return bracket_date(line, bracket, prefix) if line[at:bracket].isspace() else -1


def _xml_text(prefix: Prefix) -> str:
    """The text of Open MPI's <stdout rank="3">…</stdout>, with its four escapes undone."""
    text = prefix.message.removesuffix(f"</{prefix.stream}>")
    for escape, character in (("&lt;", "<"), ("&gt;", ">"), ("&#010;", ""), ("&amp;", "&")):
        text = text.replace(escape, character)
    return text
