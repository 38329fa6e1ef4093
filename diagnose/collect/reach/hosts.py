"""Lists of hosts as sites keep them: hostfiles of MPI and DeepSpeed, lists of Slurm and PBS.

    node1                       node1,node2             node[001-128,200],login
    alice@node1                 node1 slots=8           node1:8 (MPICH: 8 slots)
    node1:2222                  [fd00::7]:2222          ssh://alice@node1:2222
    node1 port=2222

Behind a name a number below 1024 is a number of slots, but 22 is a port; one above is a port.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from diagnose.errors import InputError

MAX_HOSTS = 20_000
_MAX_BYTES = 4 << 20
_HOST = re.compile(
    r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,252}[A-Za-z0-9_])?|[0-9A-Fa-f]*:[0-9A-Fa-f:.]+"
)
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@\\-]{0,127}")
_GROUP = re.compile(r"\[([0-9,-]{1,4096})\]")
_LITERAL = re.compile(r"\[([0-9A-Fa-f:.]+:[0-9A-Fa-f:.]*)\](?::(\d{1,5}))?")  # IPv6
_SSH_PORT, _FIRST_PORT = 22, 1024


@dataclass(frozen=True, slots=True)
class Host:
    """Where ssh is to go; no user and no port: what its configuration says."""

    name: str
    user: str | None = None
    port: int | None = None


def read_hosts(given: str) -> list[Host]:
    """The hosts of a file, of standard input (`-`), or of a list separated by commas.

    Each is there once, in the order given. Raises InputError.
    """
    path = Path(given)
    if given == "-":
        if sys.stdin is None:
            raise InputError("standard input is closed")
        return _hosts(_text(sys.stdin.buffer.read(_MAX_BYTES + 1), "standard input"), "stdin")
    try:
        is_file = path.exists() and not path.is_dir()
        if is_file:
            with path.open("rb") as stream:
                return _hosts(_text(stream.read(_MAX_BYTES + 1), given), given)
    except (OSError, ValueError) as error:
        if is_file:
            raise InputError(f"cannot read {given}: {error}") from error
    if "/" in given and not given.startswith("ssh://"):
        raise InputError(f"{given}: no such file")
    if path.suffix in (".txt", ".list", ".hosts", ".conf"):
        raise InputError(f"{given}: no such file")
    return _hosts(given, "--hosts")


def _text(data: bytes, name: str) -> str:
    if len(data) > _MAX_BYTES:
        raise InputError(f"{name} has more than {_MAX_BYTES} bytes: it is no list of hosts")
    return data.decode("utf-8", "replace")


def _hosts(text: str, name: str) -> list[Host]:
    found: dict[Host, None] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            for host in _line(words):
                found.setdefault(host)
                if len(found) > MAX_HOSTS:
                    raise InputError(f"{name}: more than {MAX_HOSTS} hosts")
        except ValueError as error:
            raise InputError(f"{name}:{number}: {error}") from error
    if not found:
        raise InputError(f"{name}: no hosts in it")
    return list(found)


def _line(words: list[str]) -> Iterator[Host]:
    """`HOST[,HOST…] [slots=8] [port=2222]`; other words of a hostfile are not for us.

    A word without `=` is a further host. Raises ValueError, which says what is wrong.
    """
    settings = dict(word.split("=", 1) for word in words if "=" in word)
    port = _port(settings["port"]) if "port" in settings else None
    for word in words:
        if "=" in word:
            continue
        for item in re.split(r",(?![^\[]*\])", word):
            for name in _expanded(item) if item else ():
                host = _host(name)
                yield Host(host.name, host.user, host.port or port)


def _host(text: str) -> Host:
    if text.startswith("ssh://"):
        url = urlsplit(text)
        return _checked(text, url.hostname or "", url.username, url.port)
    user, at, rest = text.rpartition("@")
    if literal := _LITERAL.fullmatch(rest):
        return _checked(text, literal[1], user if at else None, _port(literal[2]))
    name, colon, number = rest.partition(":")
    if not colon or ":" in number:
        return _checked(text, rest, user if at else None, None)
    if not number.isdecimal():
        raise ValueError(f"{text!a}: a port or a number of slots was expected behind the colon")
    port = int(number) if int(number) == _SSH_PORT or int(number) >= _FIRST_PORT else None
    return _checked(text, name, user if at else None, _port(str(port)) if port else None)


def _checked(text: str, name: str, user: str | None, port: int | None) -> Host:
    """A host whose parts are no options of ssh. Raises ValueError."""
    if not _HOST.fullmatch(name) or (user is not None and not _USER.fullmatch(user)):
        raise ValueError(f"{text[:100]!a} is no host")
    return Host(name, user, port)


def _port(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise ValueError(f"{text[:20]!a} is no port")
    return int(text)


def _expanded(text: str) -> Iterator[str]:
    """The names of `rack[1-2]-node[001-128,200]`. Raises ValueError."""
    found = _GROUP.search(text)
    if not found:
        yield text
        return
    for number in _numbers(found[1]):
        for rest in _expanded(text[found.end() :]):
            yield f"{text[: found.start()]}{number}{rest}"


def _numbers(group: str) -> Iterator[str]:
    for part in group.split(","):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(f"[{group[:100]}] is no range of numbers")
        low, high = int(first), int(last or first)
        if not low <= high or high - low > MAX_HOSTS:
            raise ValueError(f"[{group[:100]}] is no range of numbers")
        for number in range(low, high + 1):
            yield f"{number:0{len(first)}d}"
