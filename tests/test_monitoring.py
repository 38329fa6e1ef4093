"""The rules for Prometheus and the dashboard for Grafana: they ask for metrics that there are.

`promtool` checks the rules and what is exported where it is installed.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from diagnose.cli import main as cli
from diagnose.fleet import summarise
from diagnose.report.fleet.metrics import MAX_CAUSES, MAX_NODES, render
from diagnose.serve.model import Metrics as Served
from diagnose.text.metrics import Metric, exposition
from diagnose.watch.outlets import Metrics, View
from tests.fleet.frames import failed, frame, keep, row, typed

ROOT = Path(__file__).parents[1] / "contrib"
RULES = ROOT / "prometheus" / "diagnose.rules.yml"
DASHBOARD = ROOT / "grafana" / "diagnose.json"
PROMTOOL = shutil.which("promtool")

# The parts of Grafana's dashboard model that a dashboard of files needs (schemaVersion 39).
_POSITION = {
    "type": "object", "additionalProperties": False, "required": ["h", "w", "x", "y"],
    "properties": {
        "h": {"type": "integer", "minimum": 1}, "y": {"type": "integer", "minimum": 0},
        "w": {"type": "integer", "minimum": 1, "maximum": 24},
        "x": {"type": "integer", "minimum": 0, "maximum": 23},
    },
}  # fmt: skip
_SOURCE = {"properties": {"type": {"const": "prometheus"}, "uid": {"const": "${datasource}"}}}
_TARGET = {
    "type": "object", "required": ["refId", "expr", "datasource"],
    "properties": {
        "refId": {"pattern": "^[A-Z]$"}, "expr": {"minLength": 1}, "datasource": _SOURCE,
    },
}  # fmt: skip
_PANEL = {
    "type": "object", "required": ["id", "type", "title", "gridPos"],
    "properties": {
        "id": {"type": "integer", "minimum": 1}, "title": {"minLength": 1}, "gridPos": _POSITION,
        "type": {"enum": ["row", "stat", "timeseries", "bargauge", "table"]},
        "targets": {"type": "array", "minItems": 1, "items": _TARGET}, "datasource": _SOURCE,
    },
    "if": {"properties": {"type": {"const": "row"}}},
    "else": {"required": ["targets", "datasource", "fieldConfig", "options"]},
}  # fmt: skip
MODEL = {
    "type": "object", "required": ["uid", "title", "schemaVersion", "templating", "panels", "time"],
    "properties": {
        "schemaVersion": {"const": 39}, "uid": {"pattern": "^[a-zA-Z0-9_-]{1,40}$"},
        "panels": {"type": "array", "items": _PANEL},
    },
}  # fmt: skip


def fleet(many: int = 1) -> str:
    ran = {"culprit_hosts": ["n1"], "hosts": ["n1", "n2"], "gpu_hours_lost": 2.0}
    rows = [failed(f"job-{n}", n, **{"class": f"cause-{n}", **ran}) for n in range(many)]
    return render(summarise(typed(frame(*rows, row("good", 3, hosts=["n1", "n2"])))))


def served() -> str:
    metrics = Served()
    metrics.count("requests_total", status="2xx")
    metrics.count("refused_total", reason='a "b"\n\\')
    return metrics.text({"queue_waiting": 2})


def exported() -> set[str]:
    """The names of all samples that the three export, with those that have no value yet."""
    watch = Metrics.__new__(Metrics)
    watch.view = View(heartbeat=1.0, limit=6.0, age=2.0, step=3, ages={"0": 2.0})
    names = {sample.name for metric in watch.collect() for sample in metric.samples}
    texts = fleet() + served()
    return names | {*re.findall(r"^# TYPE (\S+)", texts, flags=re.M)}


def asked(text: str) -> set[str]:
    return {*re.findall(r"\bdiagnose_[a-z0-9_]+(?![a-z0-9_:])", text)}


def test_the_rules_ask_for_metrics_that_there_are() -> None:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    asked_for = {name for rule in rules for name in asked(rule["expr"])}
    assert len(asked_for) >= 10
    assert asked_for <= exported()
    for rule in rules:
        assert ("record" in rule) != ("alert" in rule)
        if "alert" in rule:
            assert rule["labels"]["severity"] in ("critical", "warning", "info")
            assert {*rule["annotations"]} == {"summary", "description"}


def test_the_dashboard_is_one() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    jsonschema.validate(dashboard, MODEL)
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: dict[tuple[int, int], str] = {}
    for panel in panels:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                assert taken.setdefault((x, y), panel["title"]) == panel["title"]
    variables = {one["name"] for one in dashboard["templating"]["list"]}
    assert {*re.findall(r"\$\{?([a-z]\w*)", DASHBOARD.read_text())} <= variables


def test_the_dashboard_asks_for_metrics_that_there_are() -> None:
    panels: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    asked_for = {
        name for panel in panels for one in panel.get("targets", ()) for name in asked(one["expr"])
    }
    assert len(asked_for) >= 20
    assert asked_for <= exported()


def test_labels_are_escaped() -> None:
    text = exposition([Metric("a", "gauge", "About.", [({"b": 'x"y\\\n'}, 1.5), ({}, 2)])])
    assert text == '# HELP a About.\n# TYPE a gauge\na{b="x\\"y\\\\\\n"} 1.5\na 2\n'
    assert 'diagnose_serve_refused_total{reason="a \\"b\\"\\n\\\\"} 1\n' in served()


def test_a_fleet_of_many_causes_has_few_series() -> None:
    text = fleet(many=MAX_CAUSES + 30)
    causes = re.findall(
        r"^diagnose_fleet_troubled_jobs\{cause=\"(.*?)\"\} (\d+)$", text, flags=re.M
    )
    assert len(causes) == MAX_CAUSES + 1
    assert causes[-1] == ("other", "30")
    assert sum(int(count) for _, count in causes) == MAX_CAUSES + 30
    assert len(text.splitlines()) < 300 + MAX_NODES
    assert 'diagnose_fleet_jobs{verdict="failed"} 80\n' in text
    assert 'diagnose_fleet_jobs{verdict="healthy"} 1\n' in text
    assert 'diagnose_fleet_lost_gpu_seconds{cause="other"} 216000\n' in text


def test_the_command_replaces_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(tmp_path / "results", failed("a", hosts=["n1"]), row("b", 1))
    target = tmp_path / "diagnose.prom"
    target.write_text("old")
    assert cli.run(["fleet", str(tmp_path / "results"), "--metrics", str(target)]) == 0
    assert target.read_text().startswith("# HELP diagnose_fleet_jobs ")
    assert [one.name for one in tmp_path.iterdir() if one.is_file()] == ["diagnose.prom"]
    assert f"wrote {target}" in capsys.readouterr().err


def test_a_name_that_the_exporter_does_not_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["fleet", str(tmp_path), "--metrics", "a.txt"]) == 2
    error = capsys.readouterr().err
    assert error == "diagnose: --metrics a.txt: the node exporter reads files that end in .prom\n"


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")
def test_promtool_finds_nothing() -> None:
    for arguments, text in (
        (["check", "rules", RULES.name], ""), (["test", "rules", "diagnose.rules.test.yml"], ""),
        (["check", "metrics"], fleet()),
    ):  # fmt: skip
        found = subprocess.run(
            [str(PROMTOOL), *arguments],
            check=False,
            cwd=RULES.parent,
            input=text,
            capture_output=True,
            text=True,
        )
        assert found.returncode == 0, found.stdout + found.stderr
        assert not found.stderr.strip() or arguments[0] == "test"
