"""Remedies with the setting of the job's framework, restart, timeouts."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import diagnose
from diagnose.catalog.load import load_catalog
from diagnose.catalog.schema import Place, Remedy, Run, Setting
from diagnose.diagnosis import Answer, RemedyStep, RestartAdvice
from diagnose.infer.advise.remedies import longer_timeout, remedies, restart
from diagnose.infer.events.facts import Facts
from diagnose.infer.events.onset import Activity
from diagnose.infer.rules.base import Hypothesis, Tier

from ..rows import catalog, cause_class

CATALOG = catalog()
AXOLOTL = Run("setting", ["micro_batch_size: 1"], "Axolotl")
DEEPSPEED = Run("setting", ["stage: 3"], "deepspeed")
GENERAL = Run("setting", ["batch=1"])
LOOK = Run("shell", ["nvidia-smi", "free -g"])


def winner(cause: str = "env.config", **more: Any) -> Hypothesis:
    return Hypothesis(cause, Tier.PROVEN, "title", "summary", **more)


def facts(**values: str) -> Facts:
    return Facts({name.replace("__", "."): [value] for name, value in values.items()})


@pytest.mark.parametrize(
    ("known", "run"),
    [
        (facts(framework="axolotl"), AXOLOTL),
        (facts(launcher="deepspeed"), DEEPSPEED),
        (facts(framework="verl"), GENERAL),
        (facts(), GENERAL),
    ],
)
def test_what_is_for_the_jobs_framework_is_chosen(known: Facts, run: Run) -> None:
    runs = [LOOK, GENERAL, AXOLOTL, DEEPSPEED]
    step = Remedy("fix", "Use less", "why", runs, "changes_state", "admin")
    (_, fix) = remedies(winner(remedies=[step]), CATALOG, known)
    assert fix == RemedyStep("fix", "Use less", "why", [LOOK, run], "changes_state", "admin")


def test_nobody_is_to_wait_longer_where_that_does_not_help() -> None:
    place = Place(Run("setting", ["timeout=7200"]), "https://pytorch.org/docs/stable/")
    known = replace(CATALOG, settings={"t": Setting("t", "t", "a", [place], lengthens=True)})
    steps = [Remedy("fix", "Wait longer", setting="t"), Remedy("fix", "Use less")]
    answers: tuple[Answer, ...] = ("yes", "no", "unknown")
    said = {}
    for answer in answers:
        found = remedies(winner(remedies=steps), known, facts(), longer=answer)
        said[answer] = [step.do for step in found if step.when == "fix"]
    both = ["Wait longer", "Use less"]
    assert said == {"yes": both, "no": ["Use less"], "unknown": both}


def test_a_command_is_not_there_twice() -> None:
    again = replace(LOOK, framework="slurm")
    step = Remedy("now", "Look", run=[LOOK, again])
    (only,) = remedies(winner(remedies=[step]), CATALOG, facts(launcher="slurm"))
    assert only.run == [again]


def test_an_unknown_framework_gets_all_settings() -> None:
    step = Remedy("now", "Use less", run=[AXOLOTL, DEEPSPEED])
    (only,) = remedies(winner(remedies=[step]), CATALOG, facts())
    assert only.run == [AXOLOTL, DEEPSPEED]


def place(framework: str, line: str) -> Place:
    return Place(Run("setting", [line], framework), "https://example.org")


TIMEOUT = Setting("timeout", "t", "a", [place("torch", "plain"), place("axolotl", "mine")])
SHARDS = Setting(
    "shards",
    "t",
    "a",
    [
        Place(Run("setting", ["fsdp"], "axolotl"), "https://example.org", unless="deepspeed"),
        place("deepspeed", "zero"),
    ],
)
MOUNT = Setting("mount", "t", "a", [place("docker", "a"), place("slurm", "b")])
PORT = Setting("port", "t", "a", [place("slurm", "a"), place("", "any")])
SEE = "diagnose explain {}   # the same for other frameworks"


@pytest.mark.parametrize(
    ("setting", "known", "lines"),
    [
        (TIMEOUT, facts(framework="axolotl"), ["mine"]),
        (TIMEOUT, facts(framework="transformers"), ["plain"]),
        (TIMEOUT, facts(), ["plain", SEE.format("timeout")]),
        (TIMEOUT, facts(framework="torch", launcher="slurm"), ["plain", SEE.format("timeout")]),
        (TIMEOUT, facts(framework="jax"), [SEE.format("timeout")]),
        (SHARDS, facts(framework="axolotl"), ["fsdp"]),
        (SHARDS, Facts({"framework": ["axolotl", "deepspeed"]}), ["zero"]),
        (MOUNT, facts(framework="axolotl"), ["a", "b"]),
        (MOUNT, facts(framework="axolotl", launcher="slurm"), ["b"]),
        (PORT, facts(framework="jax"), ["any"]),
        (PORT, facts(), ["any", SEE.format("port")]),
        (PORT, facts(backend="slurm"), ["a", SEE.format("port")]),
    ],
)
def test_a_setting_is_shown_where_the_job_has_it(
    setting: Setting, known: Facts, lines: list[str]
) -> None:
    entry = replace(catalog(), settings={setting.id: setting})
    step = Remedy("now", "Raise it", run=[LOOK], setting=setting.id)
    (only,) = remedies(winner(remedies=[step]), entry, known)
    assert only.run[0] == LOOK
    assert [run.lines for run in only.run[1:]] == [[line] for line in lines]


def test_the_class_fills_the_stages_that_the_entry_leaves_out() -> None:
    entry = catalog()
    default = [Remedy("prevent", "p"), Remedy("now", "n"), Remedy("fix", "f")]
    entry.classes["env.config"] = cause_class("env.config", remedies=default)
    own = [Remedy("fix", "own fix"), Remedy("fix", "own fix", "again")]
    steps = remedies(winner(remedies=own), entry, facts())
    assert [(step.when, step.do) for step in steps] == [
        ("now", "n"),
        ("fix", "own fix"),
        ("prevent", "p"),
    ]


def test_restart_avoids_hosts_only_where_that_helps() -> None:
    elsewhere = restart(winner(restart="retry_elsewhere", hosts=["a"]), CATALOG)
    assert (elsewhere.advice, elsewhere.exclude_hosts) == ("retry_elsewhere", ["a"])
    default = restart(winner(hosts=["a"]), CATALOG)
    assert (default.advice, default.exclude_hosts, default.why) == ("retry", [], "why")


def test_the_reason_of_a_class_speaks_for_no_other_advice() -> None:
    """\"A retry is a guess" beside "Restart the job", of a loss that a retry survives."""
    assert restart(winner(restart="fix_first"), CATALOG) == RestartAdvice("fix_first")


@pytest.mark.parametrize(
    ("cause", "of_class", "activity", "answer"),
    [
        ("slow.checkpoint", "yes", Activity("checkpoint", moving=True, bar=True), "yes"),
        ("slow.checkpoint", "yes", Activity("checkpoint", moving=True), "unknown"),
        ("slow.checkpoint", "yes", Activity("checkpoint", frame=True), "unknown"),
        ("slow.checkpoint", "no", Activity("checkpoint", moving=True, bar=True), "no"),
        ("data.preparation", "yes", Activity(), "unknown"),
        ("env.config", "no", Activity(), "no"),
    ],
)
def test_a_longer_timeout_helps_only_what_moves(
    cause: str, of_class: str, activity: Activity, answer: str
) -> None:
    entry = catalog()
    entry.classes[cause] = cause_class(cause, longer_timeout=of_class)
    assert longer_timeout(winner(cause), entry, activity) == answer


def test_a_known_rank_at_work_is_as_good_as_a_bar() -> None:
    entry = catalog()
    entry.classes["slow.checkpoint"] = cause_class("slow.checkpoint", longer_timeout="yes")
    saving = Activity("checkpoint", moving=True)
    named = winner("slow.checkpoint", ranks=[0])
    assert longer_timeout(named, entry, saving) == "yes"
    assert longer_timeout(named, entry, Activity("checkpoint")) == "unknown"


@pytest.mark.parametrize(
    ("line", "more", "fields", "filled"),
    [
        ("ssh <node>", {"hosts": ["gpu07"]}, {}, ["ssh gpu07"]),
        ("ssh <node>", {"hosts": ["a", "b"]}, {}, ["ssh a", "ssh b"]),
        ("sbatch --exclude=<nodes> j", {"hosts": ["a", "b"]}, {}, ["sbatch --exclude=a,b j"]),
        ("ssh <node>", {"hosts": [f"n{i}" for i in range(9)]}, {}, ["ssh <node>"]),
        ("ssh <node>", {"hosts": ["a;reboot"]}, {}, ["ssh <node>"]),
        ("ssh <node>", {}, {}, ["ssh <node>"]),
        ("show <rank>", {"ranks": [3]}, {}, ["show 3"]),
        ("show <rank>", {"ranks": [3, 4]}, {}, ["show <rank>"]),
        ("ss | grep <port>", {}, {"port": "29500"}, ["ss | grep 29500"]),
        ("nc <peer> <port>", {}, {"peer": "10.0.0.2<39571>"}, ["nc 10.0.0.2 39571"]),
        ("nc <peer> <port>", {}, {"peer": "http://vllm-0:8000"}, ["nc vllm-0 8000"]),
        ("nc <peer> <port>", {}, {"peer": "fe80::1"}, ["nc <peer> <port>"]),
        ("reset <gpu>", {}, {"busid": "0000:3b:00"}, ["reset 0000:3b:00.0"]),
        ("reset <gpu>", {}, {"busid": "00000000:3B:00.0"}, ["reset 00000000:3B:00.0"]),
        ("reset <gpu>", {}, {"dev": "3"}, ["reset <gpu>"]),
        ("accelerate --num_processes <world_size>", {}, {}, ["accelerate --num_processes 16"]),
    ],
)
def test_placeholders_are_filled_from_the_diagnosis(
    line: str, more: dict[str, Any], fields: dict[str, str], filled: list[str]
) -> None:
    step = Remedy("now", "do", run=[Run("shell", [line])])
    known = replace(facts(), world_size=16)
    (only,) = remedies(winner(remedies=[step], **more), CATALOG, known, [fields])
    assert only.run == [Run("shell", filled)]


OOM = "slurmstepd: error: Detected 1 oom-kill event(s) in StepId={} cgroup.\n"


@pytest.mark.parametrize(
    ("text", "name", "job"),
    [
        (OOM.format("99.batch"), "job.log", "99"),
        (OOM.format("7.0"), "slurm-7.out", "7"),
        (OOM.format("7.0"), "slurm-5_12.out", "<job>"),  # two jobs, of which one may be another's
        ("Killed\n", "slurm-5_12.out", "5_12"),
        ("Killed\n", "slurm-a100-node.out", "<job>"),
        (OOM.format("8.0").replace("StepId=8.0", "STEP 8.0 ON n1 "), "job.log", "8"),
        (OOM.format("8").replace("StepId=8", "STEP 8 of 90"), "job.log", "<job>"),  # of a training
    ],
)
def test_commands_of_slurm_name_the_job_that_its_lines_or_files_name(
    text: str, name: str, job: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    found = diagnose.diagnose(diagnose.load(tmp_path))
    lines = [line for step in found.remedies for run in step.run for line in run.lines]
    (asked,) = {line.split(" -o ")[0] for line in lines if line.startswith("sacct")}
    assert asked == f"sacct -j {job}"


def test_the_first_line_of_the_evidence_counts_most() -> None:
    step = Remedy("now", "do", run=[Run("shell", ["ss | grep <port>"])])
    lines = [{"port": "1"}, {"port": "2", "nic": "mlx5_0"}]
    (only,) = remedies(winner(remedies=[step]), CATALOG, facts(), lines)
    assert only.run == [Run("shell", ["ss | grep 1"])]


@pytest.mark.parametrize(
    ("who", "do"),
    [
        ({"ranks": [3]}, "Read its log."),
        ({"hosts": ["node7"]}, "Read its log."),
        ({}, "Find the silent rank."),
    ],
)
def test_where_nobody_is_named_nothing_is_told_of_a_culprit(who: dict[str, Any], do: str) -> None:
    step = Remedy("now", "Read its log.", unnamed="Find the silent rank.")
    (only,) = remedies(winner(remedies=[step], **who), CATALOG, facts())
    assert only.do == do


@pytest.mark.parametrize(
    ("held", "steps"),
    [
        ([], ["Collect", "Restart"]),
        (["bundle"], ["Take stacks", "Restart"]),
        (["stacks"], ["Collect", "Restart"]),
        (["stacks", "bundle"], ["Restart"]),
    ],
)
def test_nobody_is_told_to_take_what_is_there(held: list[Any], steps: list[str]) -> None:
    own = [
        Remedy("now", "Collect", unless=["bundle"]),
        Remedy("now", "Take stacks", given=["bundle"], unless=["stacks"]),
        Remedy("now", "Restart"),
    ]
    found = remedies(winner(remedies=own), catalog(), facts(), (), held)
    assert [step.do for step in found if step.when == "now"] == steps


def test_nobody_with_dumps_of_a_mismatch_is_told_to_find_the_calls() -> None:
    shipped = load_catalog()
    first = {
        held: remedies(winner("desync.mismatch"), shipped, Facts(), held=[*held])[0]
        for held in ((), ("dumps",))
    }
    assert first["dumps",].run == []
    assert "TORCH_DISTRIBUTED_DEBUG" in first[()].run[0].lines[0]
