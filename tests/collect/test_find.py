from __future__ import annotations

import os

import pytest

from diagnose.collect import find as module
from diagnose.collect import proc
from diagnose.collect.find import find
from diagnose.runtime.children import TimedOut
from tests.collect.machines import Machine, ranks

TORCHRUN = "python -m torch.distributed.run train.py"


def told(machine: Machine, *pids: int, job: str | None = None) -> list[tuple[int, str, int | None]]:
    return [(one.pid, one.role, one.rank) for one in find(pids, job).processes]


def test_ranks_of_torchrun_their_launcher_and_their_workers(machine: Machine) -> None:
    machine.process(10, TORCHRUN)
    ranks(machine, 2)
    env = "RANK=1 LOCAL_RANK=1 WORLD_SIZE=2"
    machine.process(30, "python -u train.py", parent=21, env=env, name="pt_data_worker")
    machine.process(31, "sh -c nvidia-smi", parent=21, env=env)
    machine.process(40, "python other.py")
    machine.process(2, "")
    found = find()
    assert [(one.pid, one.role, one.rank) for one in found.processes] == [
        (10, "launcher", None), (20, "rank", 0), (21, "rank", 1), (30, "loader", 1),
        (31, "child", 1),
    ]  # fmt: skip
    first = found.processes[1]
    assert (first.local_rank, first.world, first.local_world) == (0, 2, 2)
    assert (first.parent, first.command, first.folder) == (10, "python -u train.py", "rank-0")
    assert [one.folder for one in found.processes][-1] == "pid-31"
    assert found.problems == []


def test_a_task_of_slurm_with_ranks_below_it_is_a_launcher(machine: Machine) -> None:
    slurm = "SLURM_PROCID=1 SLURM_JOB_ID=77 SLURM_NTASKS=2"
    machine.process(9, "slurmstepd: [77.0]", name="slurmstepd")
    machine.process(10, TORCHRUN, parent=9, env=slurm)
    ranks(machine, 2, more=f"{slurm} TORCHELASTIC_RUN_ID=a")
    assert told(machine) == [
        (9, "launcher", None), (10, "launcher", None), (20, "rank", 0), (21, "rank", 1),
    ]  # fmt: skip


def test_a_task_of_slurm_without_ranks_below_it_is_one(machine: Machine) -> None:
    for task in (0, 1):
        env = f"SLURM_PROCID={task} SLURM_LOCALID={task} SLURM_NTASKS=2 SLURM_JOB_ID=77"
        machine.process(10 + task, "bash run.sh", env=env)
        machine.process(20 + task, "python train.py", parent=10 + task, env=env)
    assert [(pid, rank) for pid, role, rank in told(machine) if role == "rank"] == [
        (20, 0),
        (21, 1),
    ]


def test_a_variable_of_the_pod_is_the_rank_of_its_launcher(machine: Machine) -> None:
    machine.process(10, "/opt/conda/bin/torchrun train.py", env="RANK=1 WORLD_SIZE=2")
    ranks(machine, 2)
    assert told(machine) == [(10, "launcher", None), (20, "rank", 0), (21, "rank", 1)]


def test_an_unknown_launcher_is_known_by_the_ranks_below_it(machine: Machine) -> None:
    machine.process(10, "python my_launcher.py", env="RANK=1 WORLD_SIZE=2")
    ranks(machine, 2)
    assert told(machine) == [(20, "rank", 0), (21, "rank", 1)]


@pytest.mark.parametrize(
    "env",
    [
        "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4",
        "PMIX_RANK=3",
        "PMI_RANK=3 PMI_SIZE=4",
        "SLURM_PROCID=3",
        "RANK=3 SLURM_PROCID=1",
    ],
)
def test_each_launcher_tells_the_rank_in_its_own_way(machine: Machine, env: str) -> None:
    machine.process(20, "train_binary", env=env)
    assert told(machine) == [(20, "rank", 3)]


def test_of_two_jobs_the_larger_one_is_looked_at_unless_one_is_named(machine: Machine) -> None:
    ranks(machine, 2, more="SLURM_JOB_ID=1")
    ranks(machine, 3, first=30, more="SLURM_JOB_ID=2")
    found = find()
    assert [one.pid for one in found.processes] == [30, 31, 32]
    assert found.problems == ["other jobs here that were left out (--job or --pid chooses): 1"]
    assert [pid for pid, _, _ in told(machine, job="1")] == [20, 21]
    assert find(job="9").processes == []
    assert find(job="9").problems == ["no process of job 9 was found; here are 1, 2"]


def test_processes_that_are_named_are_taken_with_what_they_started(machine: Machine) -> None:
    ranks(machine, 2, more="SLURM_JOB_ID=1")
    machine.process(50, "python a.py", parent=10)
    machine.process(51, "python b.py", parent=50)
    assert told(machine, 50) == [(50, "rank", None), (51, "loader", None)]
    assert [one.local_world for one in find([20]).processes] == [None]
    machine.process(10, TORCHRUN)
    assert find([10]).processes[1].local_world == 2
    assert told(machine, 10)[:3] == [(10, "launcher", None), (20, "rank", 0), (21, "rank", 1)]


def test_a_process_that_is_not_here_is_no_reason_to_take_another(machine: Machine) -> None:
    ranks(machine, 2)
    assert find([99]).processes == []
    assert find([99]).problems == ["no process 99 is here"]
    both = find([20, 99])
    assert ([one.pid for one in both.processes], both.problems) == ([20], ["no process 99 is here"])


def test_without_any_rank_processes_with_torch_in_memory_are_taken(machine: Machine) -> None:
    machine.process(20, "python serve.py", maps="7f 00 /lib/libtorch_cpu.so\n")
    machine.process(
        21, "python -c from multiprocessing.spawn import spawn_main", parent=20,
        maps="7f 00 /lib/libnccl.so.2\n",
    )  # fmt: skip
    machine.process(30, "python other.py")
    found = find()
    assert [(one.pid, one.role) for one in found.processes] == [(20, "rank"), (21, "loader")]
    assert found.problems == ["no process says its rank: those with torch, NCCL or JAX"]
    assert found.processes[0].folder == "pid-20"


def test_nothing_is_found_where_nothing_is(machine: Machine) -> None:
    machine.process(os.getpid(), "diagnose collect", env="RANK=3 SLURM_PROCID=1")
    found = find()
    assert found.processes == []
    assert found.problems == ["no process of a job was found (name one with --pid)"]


def test_a_process_whose_memory_is_locked_is_left_out(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks(machine, 3)
    read = module._read

    def stuck(function: object, seconds: float) -> object:
        pids = function.args[0]  # type: ignore[attr-defined]
        if function.func is read and 21 in pids:  # type: ignore[attr-defined]
            raise TimedOut("no answer")
        return {str(pid): value for pid, value in read(pids).items()}

    monkeypatch.setattr(module, "bounded", stuck)
    found = find()
    assert [one.rank for one in found.processes] == [0, 2]
    assert found.problems == ["process 21 is stuck: /proc/21/environ gives no answer"]


def test_two_processes_that_say_the_same_rank_have_folders_of_their_own(machine: Machine) -> None:
    machine.process(20, "python a.py", env="RANK=0 WORLD_SIZE=1")
    machine.process(21, "python b.py", env="RANK=0 WORLD_SIZE=1")
    assert [one.folder for one in find().processes] == ["rank-0", "rank-0-pid-21"]


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Processes whose environment may not be read."""
    pids: set[int] = set()
    read = proc.environment

    def environment(pid: int) -> dict[str, str]:
        if pid in pids:
            raise PermissionError(13, "Permission denied", str(pid))
        return read(pid)

    monkeypatch.setattr(proc, "environment", environment)
    monkeypatch.setattr(module, "owner", lambda pid: "user alice" if pid < 50 else "user bob")
    return pids


NOTHING = "no process of a job was found (name one with --pid)"
SUDO = 'sudo "$(command -v diagnose)" collect'


def test_processes_of_others_are_counted(machine: Machine, closed: set[int]) -> None:
    closed |= {2, 20, 99}
    machine.process(20)
    machine.process(2, "")
    assert module._read([2, 20, 99]) == {2: ([], {}), 20: (["python", "train.py"], None)}
    assert find().problems == [NOTHING, "processes of other users that may not be looked at: 1"]


def test_a_job_of_others_is_named_with_the_command_that_works(
    machine: Machine, closed: set[int]
) -> None:
    machine.process(10, TORCHRUN)
    ranks(machine, 2)
    ranks(machine, 5, parent=1, first=60)
    machine.process(40, "python cron.py")
    closed |= {10, 20, 21, 40, *range(60, 65)}
    assert find().problems == [
        NOTHING,
        f"2 Python processes of user alice look like a job (pid 20, 21): {SUDO}",
        f"5 Python processes of user bob look like a job (pid 60, 61, 62, 63, …): {SUDO}",
    ]


def test_a_process_of_others_that_is_asked_for_says_whose_it_is(
    machine: Machine, closed: set[int]
) -> None:
    machine.process(20)
    machine.process(30)
    closed.add(20)
    found = find([20, 30])
    assert [one.pid for one in found.processes] == [30]
    assert found.problems == [f"process 20 is of user alice: {SUDO} --pid 20"]


def test_whose_a_process_is(machine: Machine) -> None:
    machine.process(20, uid=0)
    machine.process(21, uid=3_999_999)
    assert [module.owner(pid) for pid in (20, 21, 99)] == [
        "user root", "user 3999999", "another user",
    ]  # fmt: skip


def test_where_memory_maps_give_no_answer_nobody_is_taken(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.process(20, maps="7f 00 /lib/libtorch_cpu.so\n")
    assert module._mapped([20, 99]) == [20]
    real = module.bounded

    def stuck(function: object, seconds: float) -> object:
        if function.func is module._mapped:  # type: ignore[attr-defined]
            raise TimedOut("no answer in 8 s")
        return real(function, seconds)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "bounded", stuck)
    assert find().processes == []
