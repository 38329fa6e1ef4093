"""The server as contrib/ starts it: on Kubernetes, by systemd, out of the image."""

from __future__ import annotations

import re
import shlex
import urllib.request
from pathlib import Path
from typing import Any

import yaml

from diagnose.cli import main as cli

from .running import Running

CONTRIB = Path(__file__).parents[2] / "contrib"


def options_of(words: list[str]) -> list[str]:
    return [word for word in words if word.startswith("--")]


def known(capsys: Any) -> set[str]:
    cli.run(["serve", "--help"])
    return {*re.findall(r"--[a-z-]+", capsys.readouterr().out)}


def test_the_deployment(capsys: Any, server: Running) -> None:
    text = (CONTRIB / "kubernetes" / "serve.yaml").read_text()
    deployment, service, claim = yaml.safe_load_all(text)
    pod = deployment["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    name, command, *words = container["command"]
    assert (name, command, {*options_of(words)} - known(capsys)) == ("diagnose", "serve", set())
    given = dict(zip(words[::2], words[1::2], strict=True))
    assert given["--port"] == str(container["ports"][0]["containerPort"])
    probe = container["readinessProbe"]["httpGet"]
    assert probe["httpHeaders"] == [{"name": "Host", "value": given["--allow-host"]}]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    volumes = {volume["name"] for volume in pod["spec"]["volumes"]}
    assert volumes == mounts.keys()
    assert given["--data"].startswith(f"{mounts['results']}/")
    assert given["--token-file"].startswith(f"{mounts['token']}/")
    assert service["spec"]["selector"] == pod["metadata"]["labels"]
    ours = next(v for v in pod["spec"]["volumes"] if v["name"] == "results")
    assert ours["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert (deployment["spec"]["replicas"], deployment["spec"]["strategy"]["type"]) == (
        1, "Recreate",
    )  # fmt: skip
    with urllib.request.urlopen(f"{server.url}{probe['path']}") as answer:
        assert answer.status == 200


def test_the_unit(capsys: Any) -> None:
    unit = (CONTRIB / "systemd" / "diagnose-serve.service").read_text()
    (start,) = re.findall(r"(?m)^ExecStart=/usr/bin/env (.*)$", unit)
    name, command, *words = shlex.split(start)
    assert (name, command, {*options_of(words)} - known(capsys)) == ("diagnose", "serve", set())
    assert "%d/token" in words
    assert "LoadCredential=token:" in unit
    assert "%S/diagnose" in words
    assert "StateDirectory=diagnose\n" in unit


def test_the_image_has_extras_that_are_there() -> None:
    text = (CONTRIB / "docker" / "Dockerfile").read_text()
    (extras,) = re.findall(r"'\.\[([\w,]+)\]'", text)
    project = (CONTRIB.parent / "pyproject.toml").read_text()
    assert all(re.search(rf"(?m)^{one} = \[", project) for one in extras.split(","))
