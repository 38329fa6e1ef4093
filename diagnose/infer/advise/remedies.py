"""What to do: remedies with the setting for the outermost framework of the job, restart.

What to capture next time has the variable names of the job's own versions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from diagnose.catalog.remedies import fill, placeholders_in
from diagnose.catalog.schema import Catalog, Held, Remedy, Run, Setting
from diagnose.diagnosis import (
    Answer,
    Confidence,
    MissingEvidence,
    PythonException,
    RemedyStep,
    RestartAdvice,
)
from diagnose.infer.events.facts import Facts
from diagnose.infer.events.onset import Activity
from diagnose.infer.rules.base import Context, Hypothesis
from diagnose.lazy import expression
from diagnose.text.ranks import plural, ranks_phrase
from diagnose.timeline.event import Fields

if TYPE_CHECKING:
    from diagnose.infer.stacks.groups import PlaceClass

_ORDER = {"now": 0, "fix": 1, "prevent": 2}
# More hosts than this are no culprits to act on one by one.
_MAX_HOSTS = 8
# Of more places than this a sentence shows nothing.
_PLACES = 3
_PEER = expression(r"(?:\w+://)?(?P<host>[A-Za-z0-9][A-Za-z0-9.-]*)(?:[<:|](?P<port>\d{1,5})>?)?")
_BUS_ID = expression(
    r"(?:[0-9a-fA-F]{4}|[0-9a-fA-F]{8}):[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?P<function>\.\d)?"
)
_SLURM_JOB = expression(
    r"\b(?:(?:Step|Job)I[dD]=|(?:JOB|STEP) (?=\S{1,40} (?:ON|CANCELLED) )|slurm-)"
    r"(\d{1,10}(?:_\d{1,6})?)(?:\.\w{1,9})?\b(?![-\d])"
)
_TRAINER = ("transformers", "accelerate", "deepspeed", "torch")
# What each is built on. Where two of a job are here, the user sets things in the outer one.
_BUILT_ON = {
    "axolotl": ("trl", *_TRAINER), "llama-factory": ("trl", *_TRAINER),
    "ms-swift": ("trl", *_TRAINER), "trl": _TRAINER, "transformers": _TRAINER[1:],
    "diffusers": _TRAINER[1:], "accelerate": _TRAINER[2:], "deepspeed": ("torch",),
    "nemo": ("lightning", "megatron", "torch"), "lightning": ("deepspeed", "torch"),
    "verl": ("megatron", "vllm", "sglang", "ray", "transformers", "torch"),
    "openrlhf": ("deepspeed", "vllm", "ray", "transformers", "torch"),
    "vllm": ("ray", "torch"), "sglang": ("torch",), "megatron": ("torch",),
    "openmmlab": ("mmengine", "torch"), "rllib": ("ray", "torch"),
    "nccl-tests": ("mpi",), "osu-benchmarks": ("mpi",), "horovod": ("mpi",),
    "mindspore": ("hccl",),
}  # fmt: skip
_NOT_ON_TORCH = {
    "dask", "horovod", "jax", "kaldi", "mindspore", "mxnet", "nccl-tests", "osu-benchmarks",
    "paddle", "ray", "spark", "tensorflow",
}  # fmt: skip
# Torch 2.9 renamed the variables; either name works there, only the older one before it.
_RECORDER = (
    "TORCH_FR_BUFFER_SIZE=2000 TORCH_FR_DUMP_TEMP_FILE=/shared/fr/rank_ and, before torch 2.9, "
    "TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DEBUG_INFO_TEMP_FILE=/shared/fr/rank_; with "
    "TORCH_NCCL_DUMP_ON_TIMEOUT=1"
)
_UNDUMPED = "check their nodes; a rank that died or could not write a dump has none there either"


def remedies(
    winner: Hypothesis,
    catalog: Catalog,
    facts: Facts,
    captured: Iterable[Mapping[str, str]] = (),
    held: Collection[Held] = (),
    longer: Answer = "unknown",
) -> list[RemedyStep]:
    """The winner's own steps, then its class's for the stages it says nothing about.

    `captured`: what the lines of its evidence captured, for the placeholders in the commands;
    `held`: the evidence that is there, so that nobody is told to take it; `longer`: whether a
    longer timeout helps.
    """
    steps = list(winner.remedies)
    covered = {step.when for step in steps}
    defaults = catalog.classes[winner.cause].remedies
    steps += [step for step in defaults if step.when not in covered]
    lengthens = {setting.id for setting in catalog.settings.values() if setting.lengthens}
    steps = [step for step in steps if longer != "no" or step.setting not in lengthens]
    steps = [s for s in steps if not {*s.unless} & {*held} and {*s.given} <= {*held}]
    outside = [*facts.get("launcher"), *facts.get("backend")]
    values = _values(winner, facts, captured)
    unique: dict[str, RemedyStep] = {}
    for remedy in steps:
        step = step_of(remedy, catalog, facts.get("framework"), outside)
        runs = [_filled(run, _nodes(winner), values) for run in step.run]
        named = bool(winner.ranks or winner.hosts)
        step = replace(step, do=_worded(remedy, values, named=named), run=runs)
        unique[step.do] = step
    return sorted(unique.values(), key=lambda step: _ORDER[step.when])


def held_of(winner: Hypothesis, context: Context) -> list[Held]:
    """What else is known: that a culprit is stopped or asleep, or where all were in the end."""
    places = (place for group in context.stacks for place in group.places)
    states = {place.state for place in places if place.rank in winner.ranks}
    kinds: dict[Held, bool] = {
        "stopped": "stopped" in states,
        "asleep": states == {"sleep"},
        "places": bool(_where_ended(winner, context)),
    }
    return [kind for kind, there in kinds.items() if there]


def look_first(
    winner: Hypothesis, context: Context, raised: PythonException | None = None
) -> list[RemedyStep]:
    """The line where the culprit is by its stack, if no other rank is there, and what they do.

    Where words of an exception suggest the class, which is a guess, the line that raised it.
    """
    if winner.suggested and raised is not None and raised.where is not None:
        where = f"{raised.where.file}:{raised.where.line}"
        return [RemedyStep("now", f"Start at {where}, the line of your code that raised it.")]
    if ended := _where_ended(winner, context):
        return [RemedyStep("now", f"If it was stopped because it hung, start there: {ended}.")]
    own = next((g for g in context.stacks if g.site and {*g.ranks} <= {*winner.ranks}), None)
    if own is None or own.state == "stopped" or not any(place.running for place in own.places):
        return []
    from diagnose.infer.stacks.groups import says  # noqa: PLC0415  few jobs have stacks

    ranks, place = sorted(own.ranks), own.places[0]
    what = "" if place.state == "unknown" else f" {says(place)}"
    does = f"{ranks_phrase(ranks)} {plural(len(ranks), 'is', 'are')}{what}"
    others = [
        f"{ranks_phrase(group.ranks)} {plural(len(group.ranks), 'waits', 'wait')} "
        f"{f'in {group.call}' if group.call else 'for others'}"
        + (f" at {group.site}" if group.site else "")
        for group in context.stacks
        if group.waits and not {*winner.ranks} & {*group.ranks}
    ]
    meanwhile = f", while {', '.join(others)}" if len(others) == 1 else ""
    return [RemedyStep("now", f"Start at {_site(own)}: {does} there{meanwhile}.")]


def _where_ended(winner: Hypothesis, context: Context) -> str:
    """Where the ranks of a job were that somebody ended, "" if not some waited for others."""
    groups = [group for group in context.stacks if group.site]
    waiting = [group for group in groups if group.waits]
    if winner.ranks or not (winner.outside and 0 < len(waiting) < len(groups) <= _PLACES):
        return ""
    return ", ".join(
        f"{ranks_phrase(group.ranks)} {plural(len(group.ranks), 'was', 'were')} at {_site(group)}"
        + (f", waiting in {group.call}" if group.call else "")
        for group in sorted(groups, key=lambda group: group.waits)
    )


def _site(group: PlaceClass) -> str:
    """The line of the program at which ranks are, with its function."""
    for frame in group.places[0].stack.frames:
        if group.site == f"{frame.file.rpartition('/')[2]}:{frame.line}":
            return f"{group.site} ({frame.func})"
    return group.site or ""


def _nodes(winner: Hypothesis) -> list[str]:
    """The culprits that commands for nodes can name."""
    return [host for host in winner.hosts if host not in winner.pods]


def find_nodes(winner: Hypothesis, steps: Iterable[RemedyStep]) -> list[RemedyStep]:
    """How to find the nodes of pods that are culprits, where a step is about a node."""
    unplaced = [pod for pod in winner.pods if pod in winner.hosts][:_MAX_HOSTS]
    lines = [line for step in steps for run in step.run for line in run.lines]
    if not unplaced or not {"node", "nodes"} & {*placeholders_in(" ".join(lines))}:
        return []
    what = plural(len(unplaced), "Find the node of the pod", "Find the nodes of the pods")
    looks = [f"kubectl get pod {pod} -o jsonpath='{{.spec.nodeName}}'" for pod in unplaced]
    why = "The log names pods; commands for a node need the node's name."
    return [RemedyStep("now", f"{what}.", why, [Run("shell", looks)])]


def _worded(remedy: Remedy, values: Mapping[str, str], *, named: bool) -> str:
    """What to do, with the placeholders filled in; `named`: a rank or host is the culprit."""
    text = fill(remedy.do, values)
    fits = not placeholders_in(text) if placeholders_in(remedy.do) else named
    return text if fits or not remedy.unnamed else remedy.unnamed


def step_of(
    remedy: Remedy, catalog: Catalog, frameworks: Sequence[str], others: Sequence[str] = ()
) -> RemedyStep:
    """A remedy with what it has for these frameworks, or else for `others`: launchers and such."""
    named = layers(frameworks, others)
    runs = _chosen(remedy.run, named)
    if remedy.setting:
        runs += _places(catalog.settings[remedy.setting], named, frameworks)
    return RemedyStep(remedy.when, remedy.do, remedy.why, runs, remedy.risk, remedy.needs)


def _places(setting: Setting, named: Sequence[str], stated: Sequence[str]) -> list[Run]:
    """Where the first of these frameworks has it that has a place of its own.

    If none does, the place of plain torch, or the one for all others; if there is no such place
    either, all of them. Where the log states no framework, it also says how to find the others.
    """
    runs = [place.run for place in setting.places if place.unless not in stated]
    known = any(name != "torch" for name in stated)
    for framework in (*named, ""):
        mine = [run for run in runs if run.framework == framework]
        if mine:
            return mine if known else [*mine, _others(setting)]
    plain = any(run.framework == "torch" for run in runs)
    return [_others(setting)] if plain else runs


def _others(setting: Setting) -> Run:
    return Run("shell", [f"diagnose explain {setting.id}   # the same for other frameworks"])


def _chosen(runs: Sequence[Run], frameworks: Iterable[str]) -> list[Run]:
    """What is for the first framework that any names, else what is for all, else everything.

    Commands for all stay beside those of a framework; its own setting replaces the general one.
    """
    shared = [run for run in runs if not run.framework]
    for framework in frameworks:
        mine = [run for run in runs if run.framework.lower() == framework.lower()]
        if mine:
            own = [run.lines for run in mine]
            looks = [run for run in shared if run.kind == "shell" and run.lines not in own]
            return [*looks, *mine]
    return shared or list(runs)


def _filled(run: Run, hosts: Sequence[str], values: Mapping[str, str]) -> Run:
    """With the placeholders that are known; a shell line for one host is there once for each."""
    lines: list[str] = []
    for line in run.lines:
        each = run.kind == "shell" and "<node>" in line and 1 < len(hosts) <= _MAX_HOSTS
        for host in hosts if each else hosts[:1] if len(hosts) == 1 else [""]:
            lines.append(fill(line, {**values, "node": host}))
    return replace(run, lines=lines)


def _values(
    winner: Hypothesis, facts: Facts, captured: Iterable[Mapping[str, str]]
) -> dict[str, str]:
    values: dict[str, str] = {}
    for fields in captured:
        values = {**_captured(fields), **values}
    nodes = _nodes(winner)
    if nodes and len(nodes) <= _MAX_HOSTS:
        values["nodes"] = ",".join(nodes)
    if len(winner.pods) == 1:
        values["pod"] = winner.pods[0]
    if len(winner.ranks) == 1:
        values["rank"] = str(winner.ranks[0])
    if facts.world_size:
        values["world_size"] = str(facts.world_size)
    return values


def _captured(fields: Mapping[str, str]) -> dict[str, str]:
    """What one line says of the placeholders."""
    values = {
        name: str(fields[name])
        for name in ("nic", "path", "port", "frame", "pid", "pids", "job")
        if fields.get(name)
    }
    peer = _PEER.fullmatch(str(fields.get("peer") or ""))
    if peer:
        values["peer"] = peer["host"]
        if peer["port"]:
            values.setdefault("port", peer["port"])
    bus = _BUS_ID.fullmatch(str(fields.get("busid") or ""))
    if bus:  # the index of a GPU is another one in each process, its bus id is not
        values["gpu"] = bus[0] if bus["function"] else f"{bus[0]}.0"
    return values


def captured(context: Context, winner: Hypothesis, raised: PythonException | None) -> list[Fields]:
    """What the first sign of a cause tells for the placeholders of its remedies."""
    found = [context.timeline.at(index).fields for index in winner.rows[:1]]
    where = raised.where if raised else None
    found += [{"frame": f"{where.file}:{where.line}"}] if where else []
    return [*found, _processes(context, winner), _slurm_job(context, winner)]


def _processes(context: Context, winner: Hypothesis) -> Fields:
    """The processes that were looked at while the job ran: the culprit's, and all of a node."""
    places = [place for group in context.stacks for place in group.places if place.running]
    known = {place.rank: str(place.stack.pid) for place in places if place.stack.pid is not None}
    found = {}
    if len(winner.ranks) == 1 and winner.ranks[0] in known:
        found["pid"] = known[winner.ranks[0]]
    if len({place.stack.host for place in places}) == 1:
        found["pids"] = ",".join(known[rank] for rank in sorted(known))
    return found


def _slurm_job(context: Context, winner: Hypothesis) -> Fields:
    """The id of the one Slurm job that lines of the evidence, or names of files, state."""
    lines = [context.timeline.at(row).text for row in winner.rows]
    stated = [_SLURM_JOB.search(text) for text in [*lines, *set(context.timeline.column("source"))]]
    ids = {one[1] for one in stated if one is not None}
    return {"job": ids.pop()} if len(ids) == 1 else {}


def restart(winner: Hypothesis, catalog: Catalog) -> RestartAdvice:
    """The winner's advice, or its class's with the reason, which speaks for no other advice."""
    default = catalog.classes[winner.cause]
    advice = winner.restart or default.restart
    hosts = _nodes(winner) if advice == "retry_elsewhere" else []
    why = default.restart_why if advice == default.restart else ""
    return RestartAdvice(advice, hosts, why)  # type: ignore[arg-type]


def longer_timeout(winner: Hypothesis, catalog: Catalog, activity: Activity) -> Answer:
    """Would a longer timeout help? Yes only if the late rank is known to be moving."""
    if winner.kind == "crashed":
        return "no"
    of_class = catalog.classes[winner.cause]
    answer = winner.longer_timeout or of_class.longer_timeout
    if answer == "yes" and of_class.moving:
        return "yes" if activity.moving and (activity.bar or winner.ranks) else "unknown"
    return answer


def layers(frameworks: Iterable[str], others: Iterable[str] = ()) -> list[str]:
    """Frameworks, the outer ones first, then launchers and the like, then what they are built on.

    One that is not known is taken to be built on torch; so is a job that names none.
    """
    named = [name.lower() for name in frameworks]
    below = {name: _BUILT_ON.get(name, ()) for name in named}
    outer = sorted(named, key=lambda name: sum(name in below[other] for other in named))
    bases = [base for name in outer for base in below[name]]
    if not any(name in _NOT_ON_TORCH for name in named):
        bases.append("torch")
    return list(dict.fromkeys([*outer, *(name.lower() for name in others), *bases]))


def capture_next(
    winner: Hypothesis,
    confidence: Confidence,
    catalog: Catalog,
    facts: Facts,
    waits: bool,
    undumped: list[int] | None = None,
    held: Collection[Held] = (),
) -> list[MissingEvidence]:
    """What would settle the question, with the variable names of the job's own versions.

    `undumped` are the ranks without a Flight Recorder dump, None where there is no dump at all;
    `held` is other evidence that is there.
    """
    wanted: list[MissingEvidence] = []
    if confidence == "high":
        return wanted
    if facts.world_size and len(facts.ranks_seen) < facts.world_size:
        missing = facts.world_size - len(facts.ranks_seen)
        if missing and facts.ranks_seen:
            wanted.append(
                MissingEvidence(
                    f"the logs of {missing} of {facts.world_size} ranks",
                    "torchrun --log-dir logs --tee 3 keeps one file per rank; give the folder to "
                    "diagnose",
                )
            )
    if waits and undumped is None:
        wanted.append(_flight_recorder(facts))
    elif undumped:
        what = f"the Flight Recorder dumps of {ranks_phrase(undumped)}"
        wanted.append(MissingEvidence(what, _UNDUMPED))
    of_class = catalog.classes[winner.cause]
    stacks = [] if "stacks" in held else of_class.capture_stacks
    if of_class.vague and waits and not {"stacks", "bundle"} & {*held}:
        stacks = []
        wanted.append(
            MissingEvidence(
                "the stacks of the silent ranks",
                "while it hangs: diagnose collect --triage, on every node or with --slurm, "
                "--kubernetes, --hosts or --via (in a container with the capability SYS_PTRACE)",
            )
        )
    for line in [*stacks, *of_class.capture]:
        if (waits or "dumps" in held) and "flight recorder" in line.lower():
            continue  # it is there, or named above with the variables of this version
        what, _, how = line.partition(": ")
        wanted.append(MissingEvidence(what, how))
    return wanted[:5]


def _flight_recorder(facts: Facts) -> MissingEvidence:
    version = facts.first("version.torch") or ""
    numbers = [int(part) for part in version.split("+")[0].split(".")[:2] if part.isdigit()]
    how = _RECORDER
    if len(numbers) == 2 and numbers < [2, 2]:
        how = "needs torch 2.2 or later; until then TORCH_DISTRIBUTED_DEBUG=DETAIL"
    return MissingEvidence("which rank never joined: Flight Recorder dumps of all ranks", how)
