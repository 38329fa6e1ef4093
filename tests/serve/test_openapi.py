"""The API is what its description says: checked by schemathesis with made-up requests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from diagnose import __version__

from .running import LOG, Running

CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,"
    "response_schema_conformance,negative_data_rejection"
)


def test_the_description_names_every_route(server: Running) -> None:
    from diagnose.serve import api

    described = server.http.get("/api/v1/openapi.json").json()
    assert described["info"]["version"] == __version__
    routes = {
        (route.path, method.lower()) for route in api.ROUTES for method in route.methods or ()
    }
    told = {(path, method) for path, item in described["paths"].items() for method in item}
    assert {one for one in routes if one[1] != "head"} == told


@pytest.mark.slow
def test_made_up_requests(server: Running, tmp_path: Path) -> None:
    pytest.importorskip("schemathesis")
    server.post(LOG)
    done = subprocess.run(
        [
            Path(sys.executable).parent / "schemathesis", "run", "--checks", CHECKS,
            "--max-examples", "25", "--seed", "16", "--exclude-operation-id", "events",
            "--phases", "examples,coverage,fuzzing", "--no-color",
            f"{server.url}/api/v1/openapi.json",
        ],
        capture_output=True, text=True, check=False, cwd=tmp_path, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert server.post(LOG)["verdict"] == "hung"
