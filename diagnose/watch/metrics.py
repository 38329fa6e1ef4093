"""What Prometheus is shown of a watch: made when it asks, from what the watch put there last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from diagnose.errors import InputError
from diagnose.extras import install
from diagnose.watch.pulse import State

if TYPE_CHECKING:
    from prometheus_client.core import Metric

MAX_RANKS = 256  # with an age of their own
_PREFIX = "diagnose_watch"


@dataclass(frozen=True, slots=True)
class View:
    """The state of a watch at one look. `ages` maps authors to seconds since their progress."""

    state: State = State.STARTING
    stalls: int = 0
    attempt: int = 0
    phase: str = ""
    heartbeat: float | None = None
    limit: float | None = None
    age: float | None = None
    step: int | None = None
    files: int = 0
    missed: int = 0
    ages: Mapping[str, float] = field(default_factory=dict)


class Metrics:
    """Serves the metrics over HTTP until `close`. Raises InputError where it cannot."""

    def __init__(self, address: str) -> None:
        try:
            from prometheus_client import CollectorRegistry, start_http_server  # noqa: PLC0415
        except ImportError:
            raise InputError(f"--metrics needs a package: {install('watch')}") from None
        self.view = View()
        host, port = parsed(address)
        registry = CollectorRegistry()
        registry.register(self)
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            raise InputError(f"--metrics {address}: {error.strerror}") from error
        self.port = int(self._server.server_port)

    def close(self) -> None:
        """Serve no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def collect(self) -> Iterator[Metric]:
        """The metrics now, as prometheus_client asks for them."""
        from prometheus_client.core import (  # noqa: PLC0415  of an extra
            CounterMetricFamily,
            GaugeMetricFamily,
        )

        view = self.view
        state = GaugeMetricFamily(
            f"{_PREFIX}_state", "1 for the state of the job.", labels=["state"]
        )
        for one in State:
            state.add_metric([one.value], float(view.state is one))
        yield state
        phase = GaugeMetricFamily(f"{_PREFIX}_phase", "1 for what it is doing.", labels=["phase"])
        phase.add_metric([view.phase], 1.0)
        yield phase
        yield CounterMetricFamily(f"{_PREFIX}_stalls", "Stalls reported.", value=view.stalls)
        yield CounterMetricFamily(f"{_PREFIX}_restarts", "Attempts begun.", value=view.attempt)
        for name, text, value in (
            ("heartbeat_seconds", "Usual time between signs of progress.", view.heartbeat),
            ("limit_seconds", "Silence after which a stall is reported.", view.limit),
            ("progress_age_seconds", "Time since the last progress of any rank.", view.age),
            ("step", "Highest step of any rank.", view.step),
            ("files", "Files followed.", view.files),
            ("missed_bytes", "Bytes skipped as they came too fast.", view.missed),
        ):
            if value is not None:
                yield GaugeMetricFamily(f"{_PREFIX}_{name}", text, value=value)
        ages = GaugeMetricFamily(
            f"{_PREFIX}_rank_progress_age_seconds",
            f"Time since the last progress of a rank (of the {MAX_RANKS} oldest).",
            labels=["rank"],
        )
        for name, age in view.ages.items():
            ages.add_metric([name], age)
        yield ages


def parsed(address: str) -> tuple[str, int]:
    """Host and port of `:9400`, `127.0.0.1:9400`, `[::1]:9400` or `9400`; without a host any."""
    host, _, port = address.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise InputError(f"--metrics {address}: an address such as :9400 is needed")
    return host.strip("[]") or "0.0.0.0", int(port)
