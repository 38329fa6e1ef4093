"""Options of `scan`; what it writes is tested with `fleet`, which reads it."""

import pytest

from diagnose.cli.fleet import seconds_of
from diagnose.errors import InputError


def test_since() -> None:
    assert seconds_of("2d", 1_000_000.0) == 1_000_000 - 172_800
    assert seconds_of("90m", 1_000_000.0) == 1_000_000 - 5400
    assert seconds_of("2026-11-01T00:00:00+00:00", 0.0) == 1_793_491_200
    with pytest.raises(InputError, match="neither a date"):
        seconds_of("yesterday", 0.0)
