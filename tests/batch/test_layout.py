"""Which sources are parts of one job is told by what is in them, and never by a name alone."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diagnose.batch.jobs import JobRef, find_jobs, find_stored
from diagnose.batch.layout import Identity, identity, identity_of, note_of_archive
from diagnose.batch.work import Options, diagnose_one
from diagnose.ingest.place import File, LocalPlace, Place

Log = tuple[str, str]  # name and text


def text_of(rank: int | None, *, world: int = 0, job: str = "", day: int = 1) -> str:
    """The first lines of a log: of one rank, or of a process that does not say which."""
    tag = "" if rank is None else f"[rank{rank}]: "
    lines = [f"2026-03-{day:02d} 08:00:0{n} {tag}step {n} loss 2.{n}" for n in range(4)]
    if world:
        lines.insert(0, f"{tag}initialised, world_size={world}")
    if job:
        lines.insert(0, f"SLURM_JOB_ID={job}")
    return "\n".join(lines) + "\n"


def ranks(numbers: Sequence[int], name: str = "rank_{}.log", **facts: object) -> list[Log]:
    return [(name.format(n), text_of(n, **facts)) for n in numbers]  # type: ignore[arg-type]


def below(folder: str, logs: Sequence[Log]) -> list[Log]:
    return [(f"{folder}/{name}", text) for name, text in logs]


def written(root: Path, logs: Sequence[Log]) -> str:
    for name, text in logs:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".gz"):
            path.write_bytes(gzip.compress(text.encode()))
        else:
            path.write_text(text)
    return str(root)


def members(refs: Sequence[JobRef], root: Path) -> list[list[str]]:
    """The logs of each job."""
    found = []
    for ref in refs:
        paths = [Path(path) for path in ref.files or (ref.source,)]
        files = [f for p in paths for f in ([p] if p.is_file() else sorted(p.rglob("*")))]
        found.append(sorted(str(f.relative_to(root)) for f in files if f.is_file()))
    return sorted(found)


def jobs(root: Path, logs: Sequence[Log]) -> list[list[str]]:
    return members(list(find_jobs([written(root, logs)])), root)


def notes(root: Path) -> list[str]:
    return [ref.note for ref in find_jobs([str(root)])]


ONE: dict[str, list[Log]] = {
    "a file a rank": ranks(range(8)),
    "a packed file a rank": ranks(range(4), "rank_{}.log.gz"),
    "a file a rank and the console": [
        *ranks(range(4), world=4),
        ("console.log", "".join(text_of(n, world=4) for n in range(4))),
    ],
    "stdout and stderr a rank": [*ranks(range(4), "rank{}.out"), *ranks(range(4), "rank{}.err")],
    "a folder a rank": [log for n in range(8) for log in below(f"rank-{n}", ranks([n], "out.log"))],
    "a folder a node": [
        log for n in range(4) for log in below(f"gpu{n:03d}", ranks(range(8 * n, 8 * n + 8)))
    ],
    "a folder a node of any name, one job id": [
        log
        for n, host in enumerate(("iris", "rosa", "lilia"))
        for log in below(host, ranks([n], job="4711", name="train.log"))
    ],
    "attempts": [log for n in range(3) for log in below(f"attempt_{n}", ranks(range(4)))],
    "attempts at another size": [
        *below("attempt_0", ranks(range(4), world=4)),
        *below("attempt_1", ranks(range(2), world=2)),
    ],
    "rotated": [("train.log", text_of(0)), ("train.log.1", text_of(0)), ("train.log.2", "x\n")],
    "rotated by day": [(f"train-202603{d:02d}.log", text_of(0, day=d)) for d in (1, 2, 3)],
    "a log and folders beside it": [
        ("train.log", text_of(0)),
        *(log for n in (100, 200) for log in below(f"checkpoint-{n}", [("optimizer.pt", "x")])),
        *below("rank-1", ranks([1])),
        *below("tool", [("output.log", "started\n")]),
    ],
    "folders of one communicator": [
        (f"{name}/x.log", f"NCCL INFO ncclCommInitRank commId 0xabc123 rank {n} nranks 2\n")
        for n, name in enumerate(("left", "right"))
    ],
}


@pytest.mark.parametrize("name", ONE)
def test_parts_of_one_job_are_one(name: str, tmp_path: Path) -> None:
    logs = [(f"j/{path}", text) for path, text in ONE[name]]
    assert jobs(tmp_path, logs) == [sorted(path for path, _ in logs)]
    assert notes(tmp_path) == [""]


MANY: dict[str, list[list[Log]]] = {
    "a word that ends like a rank": [
        below(name, ranks([0])) for name in ("bert-base", "sft-7b", "lora-rank-16")
    ],
    "a sweep of ranks of an adapter": [
        below(f"lora-rank-{n}", ranks(range(4))) for n in (8, 16, 32)
    ],
    "the same as files": [[(f"lora-rank-{n}.log", text_of(0, world=1))] for n in (8, 16)],
    "a sweep": [below(f"run-{n}", ranks(range(2))) for n in (1, 2)],
    "a sweep whose logs say nothing": [
        below(f"run-{n}", [("train.log", "step 1\n")]) for n in (1, 2, 3)
    ],
    "numbers of jobs of one rank": [below(str(n), ranks([0], world=1)) for n in range(3)],
    "jobs of one node each, by host": [below(f"gpu{n:03d}", ranks(range(8))) for n in (1, 2)],
    "different world sizes": [
        below("node-0", ranks([0], world=8)),
        below("node-1", ranks([8], world=16)),
    ],
    "different job ids": [below(f"rank-{n}", ranks([n], job=f"52{n}0")) for n in (0, 1)],
    "one failing rank each": [
        below("run-1", ranks([3], world=8)),
        below("run-2", ranks([5], world=8)),
    ],
    "two jobs of two nodes": [
        [
            log
            for node in (0, 1)
            for log in below(f"{job}-node{node}", ranks([node], job=job, world=2))
        ]
        for job in ("6001", "6002")
    ],
    "a log of another scan beside them": [
        [("scan.txt", "3 jobs\n")],
        *(below(name, ranks([0])) for name in ("bert", "sft")),
    ],
}


@pytest.mark.parametrize("name", MANY)
def test_jobs_beside_each_other_stay_apart(name: str, tmp_path: Path) -> None:
    apart = MANY[name]
    logs = [log for job in apart for log in job]
    assert jobs(tmp_path, logs) == sorted(sorted(path for path, _ in job) for job in apart)


def test_where_only_names_tell_a_note_says_so(tmp_path: Path) -> None:
    silent = [(f"rank-{n}/out.log", "step 1\n") for n in (0, 1)]
    assert len(jobs(tmp_path, silent)) == 1
    assert notes(tmp_path) == [
        "taken for one job by the names of its folders: their logs do not show it; "
        "--job-glob says what is a job"
    ]


def test_the_note_of_a_job_is_in_its_row(tmp_path: Path) -> None:
    written(tmp_path, [(f"rank-{n}/out.log", "step 1\n") for n in (0, 1)])
    (ref,) = find_jobs([str(tmp_path)])
    assert diagnose_one(ref, Options()).row["notes"][0] == ref.note != ""


def test_a_job_named_like_a_part_says_why_it_is_none(tmp_path: Path) -> None:
    written(tmp_path, [log for n in (8, 16) for log in below(f"lora-rank-{n}", ranks([0, 1]))])
    assert (
        notes(tmp_path)
        == [
            "a job of its own though named like a part: rank 0 prints in each of them; "
            "--job-glob says what is a job"
        ]
        * 2
    )


@pytest.mark.parametrize("node", ["vm", "gpu-a1"])
def test_a_bundle_is_one_job(node: str, tmp_path: Path) -> None:
    manifest = json.dumps({"schema": "diagnose-bundle/1", "nodes": []}, indent=1)
    logs = [("b/manifest.json", manifest)]
    logs += [(f"b/nodes/{node}{n}/rank-0/stack.txt", text_of(0)) for n in ("", 2)]
    logs += [("c/train.log", text_of(0))]
    assert jobs(tmp_path, logs) == [sorted(path for path, _ in logs[:3]), ["c/train.log"]]
    assert notes(tmp_path) == ["", ""]


def test_nodes_of_a_bundle_without_its_manifest_are_one_job(tmp_path: Path) -> None:
    node = json.dumps({"diagnose": "node/1", "host": "vm"}, indent=1)
    logs = [(f"b/nodes/{name}/node.json", node) for name in ("vm", "vm2")]
    logs += [(f"b/nodes/{name}/rank-0/stack.txt", "x\n") for name in ("vm", "vm2")]
    assert jobs(tmp_path, logs) == [sorted(path for path, _ in logs)]


def test_the_rank_in_a_group_is_not_the_rank_of_the_job(tmp_path: Path) -> None:
    line = "[rank{0}]:[E602 08:10:05.3 ProcessGroupNCCL.cpp:685] [Rank {1}] Watchdog caught\n"
    logs = [(f"rank_{n}.log", "step 1\n" + line.format(n, n % 2)) for n in range(4)]
    assert len(jobs(tmp_path, logs)) == 1


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("export SLURM_JOB_ID=4711", {"ids": {"4711"}}),
        ("slurmstepd: error: *** JOB 4711 ON gpu001 CANCELLED ***", {"ids": {"4711"}}),
        ("  run_id           : train-7", {"ids": {"train-7"}}),
        ("  run_id           : none", {}),
        ("slurm job ended", {}),
        ("rank=3 world_size=8", {"ranks": {3}, "world": 8}),
        ("initialised, WORLD_SIZE: 16", {"world": 16}),
        ("local_world_size=4 tensor parallel world size 2", {}),
        ("local_rank=3, world unknown", {}),
        ("All registered. Starting with 8 processes", {"world": 8}),
        ("Initializing distributed: GLOBAL_RANK: 3, MEMBER: 4/8", {"ranks": {3}, "world": 8}),
        ('{"rank": 5, "message": "step 1"}', {"ranks": {5}}),
        ("[rank2]: step 1", {"ranks": {2}}),
    ],
)
def test_what_a_line_tells_of_its_job(line: str, expected: dict[str, object]) -> None:
    found = identity(line)
    told = {"ids": found.ids, "ranks": found.ranks, "world": found.world}
    assert {name: value for name, value in told.items() if value} == expected


@pytest.mark.parametrize(
    "data",
    [
        b"[rank3]: step 1\r[rank3]: step 2\r",
        b"\xef\xbb\xbf[rank3]: step 1\n",
        "[rank3]: step 1\n".encode("utf-16"),
        b"__CURSOR=s=1\n__REALTIME_TIMESTAMP=1780000000000000\nMESSAGE=[rank3]: step 1\n\n",
    ],
)
def test_who_wrote_a_log_is_read_in_any_encoding(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "job.log").write_bytes(data)
    place = LocalPlace()
    file = place.look(str(tmp_path / "job.log"))
    assert file is not None
    assert identity_of(place, file).ranks == {3}


def test_hundreds_of_jobs_named_alike_stay_apart(tmp_path: Path) -> None:
    logs = [log for n in range(200) for log in below(f"rank-{n}-lora", ranks([0]))]
    assert len(jobs(tmp_path, logs)) == 200


def nodes(world: int, per: int) -> list[list[int]]:
    return [list(range(at, min(at + per, world))) for at in range(0, world, per)]


PART_NAMES: dict[str, Callable[[int], str]] = {
    "rank": lambda n: f"rank_{n}",
    "node": lambda n: f"node-{n}",
    "host": lambda n: f"gpu{n:03d}",
    "number": str,
}
JOB_NAMES: dict[str, Callable[[int], str]] = {
    "sweep": lambda n: f"run-{n}",
    "adapter": lambda n: f"lora-rank-{2**n}",
    "word": lambda n: ("bert", "sft-7b", "eval", "moe", "dpo")[n],
    "node-like": lambda n: f"exp-node-{n}",
}


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    count=st.integers(1, 5),
    world=st.integers(2, 16),
    per=st.sampled_from([1, 2, 8]),
    part=st.sampled_from(sorted(PART_NAMES)),
    called=st.sampled_from(sorted(JOB_NAMES)),
    says_world=st.booleans(),
    says_id=st.booleans(),
)
@pytest.mark.slow
def test_any_layout_of_jobs_in_parts(
    tmp_path_factory: pytest.TempPathFactory,
    count: int,
    world: int,
    per: int,
    part: str,
    called: str,
    says_world: bool,
    says_id: bool,
) -> None:
    """As many jobs as were written, whatever their folders and parts are called."""
    root = tmp_path_factory.mktemp("jobs")
    expected = []
    for number in range(count):
        facts = {"world": world * says_world, "job": f"70{number}1" * says_id}
        job = [
            log
            for at, group in enumerate(nodes(world, per))
            for log in below(PART_NAMES[part](at), ranks(group, **facts))
        ]
        logs = below(JOB_NAMES[called](number), job)
        written(root, logs)
        expected.append(sorted(path for path, _ in logs))
    refs = list(find_jobs([str(root)]))
    assert members(refs, root) == sorted(expected)
    for ref in refs:
        assert [again.tag for again in find_stored(ref.source) if again.source == ref.source]


def test_of_parts_that_tell_their_job_few_logs_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = [
        log
        for n in range(2)
        for log in below(f"node-{n}", ranks(range(8 * n, 8 * n + 8), world=16))
    ]
    opened: list[str] = []

    def counted(place: Place, file: File) -> Identity:
        opened.append(file.path)
        return identity_of(place, file)

    monkeypatch.setattr("diagnose.batch.jobs.identity_of", counted)
    assert len(jobs(tmp_path, logs)) == 1
    assert len(opened) <= 4


def test_logs_that_tell_nothing_do_not_hide_those_that_do(tmp_path: Path) -> None:
    silent = [(f"a{n}.log", "starting\n") for n in range(4)]
    parts = [below(f"rank-{n}", [*silent, ("z.log", text_of(0, world=1))]) for n in range(2)]
    assert len(jobs(tmp_path, [log for part in parts for log in part])) == 2


@pytest.mark.parametrize(
    ("paths", "several"),
    [
        (["x/sft/rank0.log", "x/dpo/rank0.log"], 2),
        (["sft/logs/rank0.log", "dpo/logs/rank0.log", "rm/logs/rank0.log"], 3),
        (["x/logs/rank0.log", "x/console/rank0.log"], 0),
        (["x/attempt_0/rank0.log", "x/attempt_1/rank0.log"], 0),
        (["x/sft/rank0.log", "x/notes/run.log"], 0),
        (["rank0.log"], 0),
    ],
)
def test_an_archive_with_a_log_of_one_rank_in_several_folders(
    paths: list[str], several: int
) -> None:
    note = note_of_archive((path, 0) for path in paths)
    assert bool(note) == bool(several)
    assert f"in each of {several} folders" in note or not several
