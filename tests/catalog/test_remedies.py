"""Remedies that destroy, surprise or cannot run are refused; none of them is executed."""

from pathlib import Path
from typing import Literal

import pytest

from diagnose.catalog.document import CatalogError, read_catalog
from diagnose.catalog.remedies import parsed, remedy_problems
from diagnose.catalog.schema import (
    Catalog,
    CauseClass,
    Needs,
    Place,
    Remedy,
    Risk,
    Run,
    Setting,
)

Answer = Literal["yes", "no", "unknown"]


def found(
    *runs: Run, risk: Risk = "read_only", needs: Needs = "user", do: str = "Do it", why: str = ""
) -> list[str]:
    remedy = Remedy("fix", do, why, list(runs), risk, needs)
    cause = CauseClass("env.config", "t", "e", [remedy], "retry", "why")
    return list(remedy_problems(Catalog([], [], {"env.config": cause}, "test")))


def shell(*lines: str) -> Run:
    return Run("shell", list(lines))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("rm -rf $CACHE/torch", "rm -r of what may be empty"),
        ("rm -rf /tmp/inductor_${USER}", "rm -r of what may be empty"),
        ("rm -r $(ls -d /tmp/x*)", "rm -r of what may be empty"),
        ("pgrep nvcc; rm -f lock", "rm runs whatever pgrep says"),
        ("ibdiagnet --pc", "clears the port counters"),
        ("perfquery -x -R", "clears the port counters"),
        ("dmesg -C", "clears a log"),
        ("ipmitool sel clear", "clears a log"),
        ("nvidia-smi -p 0", "clears the error counts"),
        ("kill -9 -1", "kills more than it names"),
        ("kill -9 $(pgrep python)", "kills more than it names"),
        ("pkill -9 python", "kills more than it names"),
        ("pip install torchvision --index-url https://x/whl/cu121", "pins an index"),
        ("pip install torch==2.4.0", "replaces torch"),
        ("pip install --force-reinstall flash-attn", "--force-reinstall without --no-deps"),
        ('scontrol update nodename="$(cat bad)" state=drain', "acts on what may be empty"),
        ("kubectl cordon `cat bad`", "acts on what may be empty"),
        ("kubectl drain <node>", "evicts the pods of others"),
        ("pip install git+https://github.com/a/b", "whatever the repository holds"),
        ("curl https://example.org/i.sh | sudo bash", "runs what it downloads"),
        ("echo x > /etc/modprobe.d/a.conf", "replaces a system file"),
        ("unset LD_LIBRARY_PATH", "drops network plugins"),
        ("dd if=/dev/zero of=/dev/nvme0n1", "overwrites a device"),
        ("grubby --args=iommu=pt; reboot", "a reboot or power cycle stands alone"),
        ("ipmitool chassis power cycle && dcgmi diag", "a reboot or power cycle stands alone"),
        ("torchrun ... train.py", "does not run with ..."),
        ("nc -vz <endpoint host> 22", "unknown placeholder <endpoint host>"),
        ("for p in 1 2; do ls", "bash cannot parse"),
        ('echo "a', "bash cannot parse"),
    ],
)
def test_what_harms_or_cannot_run_is_refused(line: str, why: str) -> None:
    problems = found(shell(line), risk="destructive", needs="admin")
    assert len(problems) == 1, problems
    assert why in problems[0]


@pytest.mark.parametrize(
    "line",
    [
        "rm -rf /tmp/inductor_${USER:?}",
        "pgrep -f nvcc || find ~/.cache -name lock -delete",
        "perfquery -x",
        "kill -USR1 <pid>",
        "pip install --no-deps --force-reinstall <package>==<version>",
        "pip install torchvision 'transformers[torch]'",
        'n=$(cat bad); [ -n "$n" ] && echo "$n"',
        "ipmitool chassis power cycle",
        "last -x reboot shutdown | head",
        "kubectl cordon <node>",
        "export MASTER_ADDR=$(scontrol show hostnames | head -n1)",
    ],
)
def test_what_is_careful_is_not_refused(line: str) -> None:
    assert found(shell(line), risk="destructive", needs="admin") == []


@pytest.mark.parametrize(
    "line",
    [
        "systemctl restart nvidia-fabricmanager",
        "modprobe nvidia",
        "sysctl -w net.core.somaxconn=4096",
        "nvidia-smi --gpu-reset -i <gpu>",
        "scontrol update NodeName=<nodes> State=DRAIN Reason=x",
        "kubectl cordon <node>",
        "apt-get install -y pdsh",
        "ls && sudo reboot",
        "ssh <node> sudo ipmitool chassis power off",
    ],
)
def test_what_only_an_administrator_can_run_says_so(line: str) -> None:
    assert any("needs: admin is missing" in problem for problem in found(shell(line)))
    assert any("risk is missing" in problem for problem in found(shell(line), needs="admin"))


@pytest.mark.parametrize(
    ("line", "risk"),
    [
        ("pip install pybind11", "risk is missing"),
        ("DS_BUILD_OPS=1 pip install deepspeed", "risk is missing"),
        ("scancel <job>", "risk is missing"),
        ("rm -rf ~/.triton/cache", "risk: destructive is missing"),
        ("kubectl delete pod <pod>", "risk: destructive is missing"),
    ],
)
def test_what_changes_something_says_so(line: str, risk: str) -> None:
    assert any(risk in problem for problem in found(shell(line)))
    assert found(shell(line), risk="destructive") == []


@pytest.mark.parametrize(
    "line",
    [
        "dmesg -T | grep -iE 'nvme|modprobe|reboot'",
        "mount | grep nfs",
        "ipmitool sel list | tail",
        "systemctl status nvidia-fabricmanager",
        "sysctl net.ipv4.ip_local_port_range",
        "nvidia-smi -q -d ECC,ROW_REMAPPER",
        "scontrol show node <node>",
        "pip list | grep -i nccl",
    ],
)
def test_a_mere_look_needs_no_warning(line: str) -> None:
    assert found(shell(line), needs="admin") == []


def test_python_is_compiled() -> None:
    assert found(Run("python", ["with x:", "    y(<number>)"])) == []
    (problem,) = found(Run("python", ["DataLoader(num_workers=0"]))
    assert "not Python" in problem
    (problem,) = found(Run("python", ["torch.load(path, weights_only=False)"]))
    assert "runs code that is in the file" in problem


def test_the_file_system_strategy_is_for_open_files_only() -> None:
    run = Run("python", ["torch.multiprocessing.set_sharing_strategy('file_system')"])
    (problem,) = found(run, do="Use less of /dev/shm")
    assert "file_system uses /dev/shm too" in problem
    assert found(run, do="Share by name, which keeps no open files") == []


def test_attaching_says_what_a_container_needs() -> None:
    (problem,) = found(shell("py-spy dump --pid <pid>"))
    assert "say that a container needs SYS_PTRACE" in problem
    assert found(shell("gdb -p <pid> -batch -ex bt"), why="SYS_PTRACE is needed") == []


def test_notes_are_words_and_not_commands() -> None:
    assert found(Run("note", ["then reboot; rm -rf is not needed ..."])) == []


def test_nothing_is_executed_and_one_text_does_not_spoil_the_next(tmp_path: Path) -> None:
    mark = tmp_path / "executed"
    texts = [f"touch {mark}", f"}}; touch {mark}; {{", "echo 'a", f"echo $(touch {mark})", "ls"]
    assert parsed(texts) == [True, False, False, True, True]
    assert not mark.exists()


YAML = """classes:
  - id: env.own
    title: t
    explanation: e
    restart: retry
    restart_why: w
    longer_timeout: unknown
    remedies:
      - when: now
        do: d
        run: [%s]
"""


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        ("{shell: ls}", Run("shell", ["ls"])),
        ("{shell: [ls, pwd]}", Run("shell", ["ls", "pwd"])),
        ("{setting: 'a: 1', framework: axolotl}", Run("setting", ["a: 1"], "axolotl")),
        ("{setting: a=1, file: a.conf}", Run("setting", ["a=1"], "", "a.conf")),
        ("{note: ask them}", Run("note", ["ask them"])),
    ],
)
def test_the_key_tells_the_kind(run: str, expected: Run) -> None:
    catalog = read_catalog([(Path("a.yaml"), (YAML % run).encode())], "test")
    assert catalog.classes["env.own"].remedies == [Remedy("now", "d", run=[expected])]


@pytest.mark.parametrize(
    ("run", "problem"),
    [
        ("{framework: slurm}", "run: needs exactly one of shell, python, setting and note"),
        ("{shell: ls, python: x}", "run: needs exactly one of shell, python, setting and note"),
        ("{shell: ls, kind: python}", "run: kind: unknown key"),
        ("{shell: ''}", "run: shell: is empty"),
        ("{shell: [{a: b}]}", "remedies.0.run.0.lines.0: Input should be a valid string"),
        ("ls", "remedies.0.run.0: Input should be"),
    ],
)
def test_what_is_no_run_names_its_line(run: str, problem: str) -> None:
    with pytest.raises(CatalogError, match=r"^a.yaml:11: env.own: ") as caught:
        read_catalog([(Path("a.yaml"), (YAML % run).encode())], "test")
    assert problem in str(caught.value)


def test_no_entry_lengthens_a_timeout_where_its_class_says_that_it_does_not_help() -> None:
    wait = Remedy("fix", "Wait longer", setting="timeout")
    place = Place(Run("setting", ["timeout=7200"]), "https://pytorch.org/docs/stable/")
    settings = {"timeout": Setting("timeout", "t", "a", [place], lengthens=True)}
    answers: list[tuple[Answer, bool]] = [("no", True), ("unknown", False), ("yes", False)]
    for answer, wrong in answers:
        cause = CauseClass("net.dns", "t", "e", [wait], "retry", "why", longer_timeout=answer)
        catalog = Catalog([], [], {"net.dns": cause}, "test", settings=settings)
        problem = "net.dns: remedies: timeout: does not help against net.dns"
        assert (problem in remedy_problems(catalog)) is wrong
