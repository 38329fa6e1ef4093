"""What a request is refused with."""

from __future__ import annotations

from collections.abc import Mapping


class Refused(Exception):  # noqa: N818  a decision
    """A request is not done: the status, a word for programs and a line for people."""

    def __init__(
        self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = dict(headers or {})


def busy(seconds: int) -> Refused:
    """The queue is full."""
    return Refused(
        429,
        "queue_full",
        f"The queue is full. Try again in {seconds} s.",
        {"Retry-After": str(seconds)},
    )
