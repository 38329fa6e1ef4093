"""Where servers listen: `serve` and `mcp`."""

from __future__ import annotations

import ipaddress
import socket

from diagnose.errors import InputError

_BACKLOG = 512


def listening(host: str, port: int) -> socket.socket:
    """The socket of an address. Raises InputError."""
    try:
        (family, kind, _, _, address), *_ = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        listener = socket.socket(family, kind)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(_BACKLOG)
        except BaseException:
            listener.close()
            raise
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(f"cannot listen on {host} port {port}: {why}") from error
    return listener


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address; a name counts by all that it stands for."""
    try:
        found = {entry[4][0] for entry in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return False
    return all(ipaddress.ip_address(str(one).partition("%")[0]).is_loopback for one in found)


def url(host: str, port: int) -> str:
    """The address for a browser."""
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}/"
