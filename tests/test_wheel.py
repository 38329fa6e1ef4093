"""The built wheel works by itself: outside the checkout, in an environment with nothing else."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOG = ROOT / "fixtures" / "torchrun-missing-rank" / "console.log"

pytestmark = pytest.mark.slow


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, ROOT, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def command(wheel: Path) -> Path:
    folder = wheel.parent / "venv"
    run(sys.executable, "-m", "venv", folder, cwd=wheel.parent)
    run(folder / "bin" / "python", "-m", "pip", "install", "-q", wheel, cwd=wheel.parent)
    return folder / "bin" / "diagnose"


def test_the_wheel_holds_package_and_catalog_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    patterns = ROOT / "patterns"
    prefixes = {p.relative_to(ROOT).as_posix() for p in (ROOT / "diagnose/formats").rglob("*.yaml")}
    assert len(prefixes) > 9
    tables = {f"diagnose/formats/{name}.json" for name in ("prefixes", "stacks", "frames")}
    assert prefixes | tables <= names
    shipped = {
        n.removeprefix("diagnose/patterns/") for n in names - prefixes if n.endswith(".yaml")
    }
    assert shipped == {p.relative_to(patterns).as_posix() for p in patterns.rglob("*.yaml")}
    modules = {p.relative_to(ROOT).as_posix() for p in (ROOT / "diagnose").rglob("*.py")}
    assert modules | {"diagnose/py.typed"} <= names
    served = ROOT / "diagnose" / "serve"
    data = {p.relative_to(ROOT).as_posix() for p in served.rglob("*.*") if p.suffix != ".pyc"}
    assert {"diagnose/serve/openapi.json"} < data
    data |= {p.relative_to(ROOT).as_posix() for p in (ROOT / "diagnose").glob("formats/*/*.json")}
    assert data <= names
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"diagnose"}


def test_the_installed_command_diagnoses_a_job(command: Path, tmp_path: Path) -> None:
    answer = json.loads(run(command, "triage", LOG, "--format", "json", cwd=tmp_path))
    assert (answer["verdict"], answer["root_cause"]["class"]) == ("hung", "desync.missing_rank")
    assert answer["culprits"]["ranks"] == [5]


def test_the_wheel_is_small_enough_for_an_index(wheel: Path) -> None:
    assert wheel.stat().st_size < 15 << 20


def test_the_first_start_compiles_nothing_and_writes_nothing(command: Path, tmp_path: Path) -> None:
    """As in a container whose user may write nowhere."""
    code = (
        "import sys; from diagnose.cli.main import run; run(['triage', sys.argv[1]]);"
        "assert not {'yaml', 'pydantic', 'diagnose.match.build'} & {*sys.modules}"
    )
    done = subprocess.run(
        [command.with_name("python"), "-c", code, LOG],
        cwd=tmp_path,
        env={"HOME": "/proc/nobody", "TMPDIR": "/proc/nobody"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("HUNG")


def test_the_installed_catalog_is_the_one_of_the_checkout(command: Path, tmp_path: Path) -> None:
    here = [sys.executable, "-m", "diagnose"]
    assert run(command, "catalog", "list", cwd=tmp_path) == run(*here, "catalog", "list", cwd=ROOT)
