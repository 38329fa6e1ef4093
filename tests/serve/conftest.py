"""One server for most tests: they use results of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("starlette", reason="needs the extra serve")

from .running import Running, running


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("serve"), upload=8 << 20, queue=5) as found:
        yield found
