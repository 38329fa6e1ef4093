"""Where a line of text names a person: folders, addresses, fields, sentences of programs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Set

from diagnose.lazy import expression
from diagnose.redact import data, words
from diagnose.redact.credentials import by_kind, kind
from diagnose.redact.views import Span, lowered

# Accounts and folders that say what a machine is, not who works there.
_NOBODY = words("nobody")
_NAME = r"\w[\w.+-]{0,63}"

# Behind these a user's folder stands; /home/a/alice is filed by first letter.
_HOME = expression(
    r"/(home/jusers|home\d{0,2}|homes|Users|users|user)/(?:([A-Za-z])/(?=\2))?"
    rf"({_NAME}(?:@[\w.-]{{1,80}})?)(?!\w|/\[user-)(/?)"
)
_NO_PATH = expression(r"[^\w.+/-]")
_METHOD = expression(r"\b(?:GET|HEAD|POST|PUT|PATCH|DELETE) \Z")
# Storage mounted for all, where homes are kept: the whole path before /home.
_MOUNT = expression(
    r"/(?:mnt|data|nfs|gpfs|lustre|fsx|exports?|scratch|work|storage|ceph|beegfs|global|net|var|usr"
    r"|vol|volume|cluster|shared?|p|fs|efs|c|d|private|System|afs)\w{0,16}(?:/[\w.+-]{1,40}){0,4}"
)
_BUCKET = expression(r"\b(?:s3a?|gs|hdfs|viewfs|dbfs|oss|abfss?|wasbs?):(?://)?[^\s/]{0,100}\Z")
# Users keep folders under these, and so do others: only names known from elsewhere count.
_SHARED = expression(
    r"/(?:scratch|work|checkpoints?|fsx|lustre|data|u|nfs|mnt|gpfs|projects?)\w{0,8}"
    r"((?:/[\w.+-]{1,64}){1,6})"
)
MAX_KNOWN = 64  # user names looked for there
_FILE = expression(r".*\.(?:py|sh|log|txt|json|ya?ml|out|err|cpp|cu|so|md|zip|tar|gz)", re.S)

_ADDRESS = expression(
    r"(?<![\w.%+/-])(?:(?<=\\)[nrt])?"  # a written-out \n before it is not part of it
    r"([\w.%+-]{1,64}?)@([A-Za-z0-9](?:[A-Za-z0-9.-]{0,250}[A-Za-z0-9])?)"
)
_NUMERIC = expression(r"\d{1,3}(?:\.\d{1,3}){3}\Z")
_REMOTE = expression(r"\b(?:ssh|scp|rsync|sftp|mosh|sshfs)\b")
_PROMPT = expression(r":[~/]|\s[^\s\]]{1,60}\][$#]")
_TOP_LEVEL = words("top_level")
_INTERNAL = words("internal")
_NO_COUNTRY = words("no_country")  # which follow a dot in code and file names more often

_KINDS = tuple(map(kind, data("people")))
# In lower case a line with a person's name has one of these, or the name is known.
_WORDS = {"@", "/home", "user", *(word for one in _KINDS for word in one.keywords)}
WORDS = tuple([word for word in _WORDS if not any(o in word for o in _WORDS - {word})])
_USER_KNOWN = expression(rf"\buser:? ({_NAME})|({_NAME})(?:@\w|\(\d)")


def find(line: str, known: Set[str]) -> Iterator[Span]:
    """Names and addresses of people in one line; `known` are names seen elsewhere."""
    lower = lowered(line)
    if "@" in line:
        yield from _addresses(line)
    if "/home" in line or "users" in lower or "/user/" in line:
        yield from _homes(line)
    yield from (span._replace(kind="user") for span in by_kind(line, lower, _KINDS))
    if any(name in line for name in known):
        yield from _known(line, known)


def _known(line: str, known: Set[str]) -> Iterator[Span]:
    """Names known from elsewhere, where a name may stand: shared folders, user alice, alice@n1."""
    for match in _USER_KNOWN.finditer(line):
        if match.group(match.lastindex or 0) in known:
            yield Span(*match.span(match.lastindex or 0), "user")
    for path in _SHARED.finditer(line):
        at = path.start(1) + 1
        for part in path.group(1)[1:].split("/"):
            if part in known:
                yield Span(at, at + len(part), "user")
            at += len(part) + 1


def _addresses(line: str) -> Iterator[Span]:
    """E-mail addresses; of user@host only the user."""
    for match in _ADDRESS.finditer(line):
        top = match[2].rpartition(".")[2].lower() if "." in match[2] else ""
        remote = _REMOTE.search(line, max(0, match.start() - 160), match.start())
        if (
            remote
            or top in _INTERNAL
            or _NUMERIC.match(match[2])
            or _PROMPT.match(line, match.end())
        ):
            yield Span(*match.span(1), "user")
        elif line[match.end() : match.end() + 1] in ("(", "[", "_") or match[1].lower() == "git":
            continue  # q@k.transpose(…) in a source line; git@github.com
        elif top in _TOP_LEVEL or (len(top) == 2 and top.isalpha() and top not in _NO_COUNTRY):
            yield Span(match.start(1), match.end(), "email")


def _homes(line: str) -> Iterator[Span]:
    for match in _HOME.finditer(line):
        name = match[3].rstrip(".+-")
        if _is_home(line, match.start(), match[1], bool(match[2])) and (
            match[4] or not _FILE.fullmatch(name)
        ):
            yield Span(match.start(3), match.start(3) + len(name), "user")


def _is_home(line: str, at: int, root: str, by_letter: bool) -> bool:
    """Whether the path that comes to `/home/` (or another root) at `at` keeps users there."""
    near = line[max(0, at - 120) : at]
    before = _NO_PATH.split(near)[-1]
    start = at - len(before)
    if ":" in near and _BUCKET.search(near):
        return True
    if root == "user" and not by_letter:
        return False
    if before in ("", "-I", "-L", "//"):
        return not _METHOD.search(line, max(0, start - 8), start)
    if before in ("n", "r", "t"):
        return line[start - 1 : start] == "\\"
    return by_letter or _MOUNT.fullmatch(before) is not None


def is_person(name: str) -> bool:
    """Whether a name is no account of a machine or a service."""
    return name.lower() not in _NOBODY
