"""What is there to be copied works: the action's steps, the issue form, the skill, the settings."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from diagnose.cli import main as cli
from tests.sizes import few
from tests.test_words import wrong

ROOT = Path(__file__).parents[1]
ACTION = ROOT / "contrib" / "github-action" / "action.yml"
FORM = ROOT / "contrib" / "issue-template" / "hung-job.yml"
SKILL = ROOT / "skills" / "diagnose-hang" / "SKILL.md"
FIXTURES = ROOT / "fixtures"

# Stands in for Python on a runner: `-m venv` makes an environment whose pip only says what it was
# asked for, and whose diagnose is ours.
PYTHON = """\
#!/bin/sh
[ "$1 $2" = "-m venv" ] || exit 9
mkdir -p "$3/bin"
printf '#!/bin/sh\\necho "$@" > "%s/pip-asked"\\n' "$3" > "$3/bin/pip"
printf '#!/bin/sh\\nexec "{python}" -m diagnose "$@"\\n' > "$3/bin/diagnose"
printf '#!/bin/sh\\nexec "{python}" "$@"\\n' > "$3/bin/python"
chmod +x "$3/bin/pip" "$3/bin/diagnose" "$3/bin/python"
"""


def loaded(path: Path) -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return data


class Runner:
    """Runs the steps of the action as a runner does: inputs by the environment, bash -e."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        python = folder / "python3"
        python.write_text(PYTHON.format(python=sys.executable))
        python.chmod(0o755)
        self.files = {name: folder / name for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}

    def run(self, **inputs: str) -> subprocess.CompletedProcess[str]:
        action = loaded(ACTION)
        given = {name: one.get("default", "") for name, one in action["inputs"].items()}
        given |= {"python": str(self.folder / "python3")}
        given |= {name.replace("_", "-"): value for name, value in inputs.items()}
        for file in self.files.values():
            file.write_text("")
        for step in action["runs"]["steps"]:
            filled = {
                name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda m: given[m[1]], value)
                for name, value in step["env"].items()
            }
            files = {name: str(path) for name, path in self.files.items()}
            done = subprocess.run(
                ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step["run"]],
                cwd=ROOT,
                env=os.environ | filled | files | {"RUNNER_TEMP": str(self.folder / "temp")},
                capture_output=True,
                text=True,
                check=False,
                timeout=120,
            )
            if done.returncode:
                break
        return done

    @property
    def outputs(self) -> dict[str, str]:
        rows = self.files["GITHUB_OUTPUT"].read_text().splitlines()
        return dict(row.split("=", 1) for row in rows)

    @property
    def summary(self) -> str:
        return self.files["GITHUB_STEP_SUMMARY"].read_text()


def test_the_action_is_well_formed() -> None:
    action = loaded(ACTION)
    assert set(action) == {"name", "description", "inputs", "outputs", "runs"}
    steps = action["runs"]["steps"]
    assert action["runs"]["using"] == "composite"
    text = "".join(value for step in steps for value in step["env"].values())
    for name, one in action["inputs"].items():
        assert one["description"]
        assert f"${{{{ inputs.{name} }}}}" in text
    assert set(re.findall(r"inputs\.([\w-]+)", text)) == set(action["inputs"])
    for step in steps:
        assert step["shell"] == "bash"
        assert "${{" not in step["run"]  # whoever sets an input could run anything there
        for name in step["env"]:
            assert f"${name}" in step["run"]
    told = set(
        re.findall(r"(\w+)=", "".join(re.findall(r'(?:print\(f"|echo ")(\w+=)', steps[1]["run"])))
    )
    assert told == set(action["outputs"])
    for name, one in action["outputs"].items():
        assert one["value"] == f"${{{{ steps.diagnose.outputs.{name} }}}}"


@pytest.mark.slow
def test_the_action_fails_on_a_hung_job_and_says_why(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    done = runner.run(paths=f"{FIXTURES / 'torchrun-missing-rank'}\n", package="diagnose-hangs==9")
    assert done.returncode == 1, done.stderr
    assert (tmp_path / "temp" / "diagnose-venv" / "pip-asked").read_text() == (
        "install -q diagnose-hangs==9\n"
    )
    outputs = runner.outputs
    assert (outputs["verdict"], outputs["class"]) == ("hung", "desync.missing_rank")
    assert outputs["confidence"] == "medium"
    assert json.loads(Path(outputs["json"]).read_text())["culprits"]["ranks"] == [5]
    assert Path(outputs["markdown"]).read_text() == runner.summary
    assert runner.summary.startswith("### Hung: A rank never reached the collective")


@pytest.mark.slow
def test_the_action_passes(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    hung = str(FIXTURES / "torchrun-missing-rank" / "console.log")
    assert runner.run(paths=f"\n{hung}\n\n", fail_on="failed,hung:high").returncode == 0
    assert runner.outputs["verdict"] == "hung"
    assert runner.run(paths=hung, fail_on="").returncode == 0


@pytest.mark.slow
def test_the_action_takes_no_orders_from_its_inputs(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    odd = tmp_path / "--no-redact $(touch ran) `touch ran` 'a b'.log"
    odd.write_text("[rank0]: step 1\n[rank0]: ValueError: bad\n")
    done = runner.run(paths=str(odd), fail_on="failed")
    assert done.returncode == 1, done.stderr
    assert runner.outputs["verdict"] == "failed"
    assert not (ROOT / "ran").exists()
    wrong_ = runner.run(paths=str(odd), fail_on="$(touch ran)")
    assert (wrong_.returncode, runner.outputs) == (2, {})
    assert "::error::the logs cannot be diagnosed" in wrong_.stdout
    empty = runner.run(paths="\n")
    assert (empty.returncode, empty.stdout) == (2, "::error::no path given\n")


def test_the_issue_form_is_one() -> None:
    form = loaded(FORM)
    assert set(form) == {"name", "description", "title", "body"}
    types = {"markdown", "textarea", "input", "dropdown", "checkboxes"}
    ids = [element["id"] for element in form["body"] if element["type"] != "markdown"]
    assert len(ids) == len(set(ids))
    for element in form["body"]:
        assert element["type"] in types
        assert set(element) <= {"type", "id", "attributes", "validations"}
        assert element["attributes"].get("label") or element["type"] == "markdown"
    (command,) = [
        element["attributes"]["value"].strip()
        for element in form["body"]
        if element.get("id") == "diagnosis"
    ]
    assert command == "diagnose triage logs/ --format github"


def commands(text: str) -> list[str]:
    """The command lines of a text: in blocks of shell, and inline where they begin with it."""
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    lines = [line.strip() for block in blocks for line in block.splitlines()]
    lines += re.findall(r"`(diagnose [^`]+)`", text)
    return [line for line in lines if line.startswith("diagnose ") and line != "diagnose mcp"]


def test_the_skill_follows_the_convention() -> None:
    text = SKILL.read_text(encoding="utf-8")
    _, front, body = text.split("---\n", 2)
    meta = yaml.safe_load(front)
    assert set(meta) == {"name", "description"}
    assert meta["name"] == SKILL.parent.name
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", meta["name"])
    assert len(meta["name"]) <= 64
    assert 0 < len(meta["description"]) <= 1024
    assert body.count("\n") < 500
    assert wrong(re.sub(r"`[^`\n]*`", "", text)) == ""
    for word in ("victim", "high", "medium", "low", "unknown", "timeout", "missing_evidence"):
        assert word in body


@pytest.mark.parametrize("line", few(commands(SKILL.read_text(encoding="utf-8")), 3))
@pytest.mark.slow
def test_each_command_of_the_skill_runs(
    tmp_path: Path, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "logs").symlink_to(FIXTURES / "torchrun-missing-rank")
    (tmp_path / "pasted.txt").write_text("[rank0]: step 1\n[rank0]: ValueError: bad\n")
    (tmp_path / "out").mkdir()
    (tmp_path / "diagnose").write_text(
        f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m diagnose "$@"\n'
    )
    (tmp_path / "diagnose").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, (line, done.stderr)


def test_the_skill_names_enough_commands() -> None:
    told = commands(SKILL.read_text(encoding="utf-8"))
    assert {line.split()[1] for line in told} == {
        "triage", "explain", "catalog", "checkpoint", "report"
    }  # fmt: skip


def block(page: str, mark: str) -> str:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.split(r"```\w+\n", text.partition(f"<!-- {mark} -->\n")[2])[1].split("```")[0]


@pytest.mark.parametrize("mark", [".mcp.json", "config.toml", "cursor", "vscode"])
def test_the_settings_for_agents_start_the_server(
    mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = block("mcp.md", mark)
    data = tomllib.loads(text) if mark.endswith("toml") else json.loads(text)
    (servers,) = data.values()
    server = servers["diagnose"]
    assert server["command"] == "diagnose"
    assert set(server) <= {"type", "command", "args"}
    monkeypatch.chdir(tmp_path)
    arguments = [*server["args"][:-1], str(tmp_path / "nothing")]
    assert cli.run(arguments) == 2  # it is understood; there is only no such folder


def test_the_page_on_the_server_names_every_option_and_tool(
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = (ROOT / "docs" / "mcp.md").read_text(encoding="utf-8")
    assert cli.run(["mcp", "--help"]) == 0
    for option in set(re.findall(r"--[a-z-]+", capsys.readouterr().out)) - {"--help"}:
        assert f"`{option}" in page
    toolbox = (ROOT / "diagnose" / "mcp" / "toolbox.py").read_text(encoding="utf-8")
    for tool in re.findall(r"\(self\.(\w+), \"", toolbox):
        assert f"| `{tool}` |" in page


def test_the_page_on_ci_is_true(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    values = re.findall(r"`([a-z._:]+)`", page.partition("| value |")[2].partition("```")[0])
    assert {"any", "net.fabric", "hung:high"} <= set(values)
    log = str(FIXTURES / "torchrun-missing-rank")
    for value in values:
        assert cli.run(["triage", log, "--fail-on", value]) in (0, 1), value
    capsys.readouterr()
    used = set(re.findall(r"steps\.why\.outputs\.(\w+)", page))
    action = loaded(ACTION)
    assert used <= set(action["outputs"])
    example = yaml.safe_load(page.partition("```yaml\n")[2].partition("```")[0])
    assert set(example[0]["with"]) <= set(action["inputs"])
