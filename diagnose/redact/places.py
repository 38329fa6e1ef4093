"""Hides where a job ran in text that strangers will read: hosts, addresses, the way to a folder.

A `Redactor` leaves these, because whoever runs the job needs them. The same host or address gets
the same mask everywhere; of a path its last folder and file stay, of an installed package all that
is inside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_LOCAL = frozenset({"localhost", "127.0.0.1", "0.0.0.0", "255.255.255.255"})
_ADDRESS = re.compile(
    r"(?<![\w.-])(?<!==)(?:\d{1,3}\.){3}\d{1,3}(?![\w.-]*\w\.|\w)"
    r"|(?<![\w.-])ip(?:-\d{1,3}){4}(?:\.[\w-]{1,63}){0,6}(?![\w-])"  # as clouds name a machine
    r"|(?<![\w:.])(?:[0-9a-fA-F]{1,4}:){4,7}:?[0-9a-fA-F]{1,4}(?![\w:])"
    r"|(?<![\w:.])(?:fe80|f[cd][0-9a-f]{2}|2[0-9a-f]{3})(?=[0-9a-f:]{0,34}::)"
    r"(?::[0-9a-f]{0,4}){2,7}(?![\w:])"
)
_NAMED = re.compile(
    r"\b(SLURM\w*NODELIST|SLURMD_NODENAME|SLURM_(?:SUBMIT|LAUNCH_NODE)\w*|SLURM_JOB_(?:USER|ACCOUNT)"
    r"|MASTER_ADDR|NodeList|BatchHost|NodeName|ReqNodeList|ExcNodeList)="
    r"([^\s,;\[]+(?:\[[^\]]*\])?(?:,[^\s,;\[=]+(?:\[[^\]]*\])?(?![^\s,;]))*)"
)
_DOMAIN = r"(?:\.[A-Za-z][\w-]{0,62}){2,8}"
_PEER = re.compile(rf"(?<![\w.-])[A-Za-z][\w-]{{0,62}}{_DOMAIN}(?=<\d{{1,5}}>)")  # NCCL: host<port>
_LOGGED_IN = re.compile(r"(?<=[\w\]]@)[A-Za-z][\w.-]*(?=:[~/]|\s|$)", re.MULTILINE)
_PATH = re.compile(r"(?<![\w/.…\]-])/(?!/)(?:[^\s/:'\"<>|()=,]{1,200}/){2,40}(?=[^\s/])")
_PACKAGED = re.compile(r".*/(?=(?:site|dist)-packages/)|.*/lib/(?=python\d)")
_SYSTEM = ("/dev/", "/proc/", "/sys/", "/etc/", "/usr/", "/opt/", "/lib")
_TELLING = re.compile(r"[\d.-]")  # what tells a name of a machine from a word


class Places:
    """Replaces hosts, addresses and paths; `hosts` are the names that the job has."""

    def __init__(self, hosts: Iterable[str] = ()) -> None:
        self._masks: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}
        known = {
            name
            for host in hosts
            if not _dotted(host)
            for name in (host, host.partition(".")[0])
            if len(name) > 1 and _TELLING.search(name) and not self._is_local(name)
        }
        # In Markdown an underscore may be escaped.
        ordered = sorted(known, key=len, reverse=True)
        names = "|".join(re.escape(name).replace("_", r"\\?_") for name in ordered)
        self._hosts = (
            re.compile(rf"(?<![\w-])(?:{names})(?![\w-])(?:{_DOMAIN})?") if names else None
        )

    def text(self, text: str) -> str:
        """`text`, of any number of lines, without places; done twice it changes nothing more."""
        text = _NAMED.sub(lambda found: f"{found[1]}={self._mask('host', found[2])}", text)
        text = _LOGGED_IN.sub(lambda found: self._mask("host", found[0]), text)
        text = _PEER.sub(lambda found: self._mask("host", found[0]), text)
        text = _ADDRESS.sub(lambda found: self._mask("address", found[0]), text)
        if self._hosts is not None:
            text = self._hosts.sub(
                lambda found: self._mask("host", found[0].replace("\\", "")), text
            )
        return _PATH.sub(lambda found: _shortened(found[0]), text)

    @staticmethod
    def _is_local(name: str) -> bool:
        return name in _LOCAL or name.startswith("127.")

    def _mask(self, kind: str, value: str) -> str:
        numbers = [int(part) for part in value.split(".")] if _dotted(value) else [0]
        if self._is_local(value) or value.startswith("[") or max(numbers) > 255:
            return value
        if kind == "host" and not _dotted(value):
            value = value.partition(".")[0]  # with its domain and without it is the same host
        if (kind, value) not in self._masks:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._masks[kind, value] = f"[{kind}-{self._counts[kind]}]"
        return self._masks[kind, value]


def _dotted(value: str) -> bool:
    return value.replace(".", "").isdigit()


def _shortened(folders: str) -> str:
    packaged = _PACKAGED.match(folders)
    if packaged:
        return f"…/{folders[packaged.end() :]}"
    if folders.startswith(_SYSTEM):
        return folders
    return f"…/{folders.rstrip('/').rpartition('/')[2]}/"
