"""HTTP/1.1 for clients that may be slow on purpose: uvicorn's protocol with deadlines.

uvicorn bounds the size of headers and the time between two requests, but not how long the headers
of a request may take (slowloris), nor how long an answer may wait to be read.
"""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from diagnose.serve.settings import HEADER_SECONDS, REPLY_IDLE_SECONDS


class Deadlines(H11Protocol):
    """Ends connections that keep us waiting."""

    _late: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See asyncio.Protocol."""
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if self._late is None and self.conn.their_state is h11.IDLE:
            self._expect()
        super().data_received(data)
        if self._late is not None and self.conn.their_state is not h11.IDLE:
            self._late.cancel()
            self._late = None

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        for timer in (self._late, self._unread):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """See asyncio.BaseProtocol."""
        super().pause_writing()
        self._unread = self.loop.call_later(REPLY_IDLE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """See asyncio.BaseProtocol."""
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
        super().resume_writing()

    def _expect(self) -> None:
        """The headers of a request must be there in time."""
        self._late = self.loop.call_later(HEADER_SECONDS, self.transport.abort)
