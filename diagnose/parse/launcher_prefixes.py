"""Prefixes of launchers and collectors: srun, pdsh, MPI, Ray, Kubernetes, docker (FORMATS 1.4).

Also the tags with which programs say who prints. Function contract as in torch_prefixes; a family
that one expression tells is a `row`, whose groups are named as what they fill.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache

from diagnose.lazy import expression
from diagnose.parse.who import LEVEL, Prefix, row

# Families that may stand left of a launcher's own label; anything else means we are inside.
OUTER = frozenset(
    {
        "cri",
        "docker",
        "elapsed",
        "json",
        "iso",
        "kaggle",
        "kubectl",
        "stern",
        "compose",
        "pdsh",
        "journal",
        "syslog",
    }
)

_LABEL = expression(r"(?:P(\d{1,4}) +| {0,6})(\d{1,6}):(?: |\Z)")
# Horovod's stall report lists tensors per rank, "6: [horovod_allreduce.0, ...]"; also "0: [1, 2]".
_TENSORS = expression(r"\[[\w/:.\-]{1,300}(?:, |\]?\Z)")
_MPI = expression(
    r"\[(?:([^\[\],<>]{1,160}),)?(?:mpirank:)?(\d{1,7})(?:,([\w.\-]{1,80}))?\]"
    r"(?:\[([\w.\-]{1,128}):(\d{1,7})\])?<(stdout|stderr|stddiag)>:"
)
_MPI_TIME = expression(r"<(stdout|stderr|stddiag)>: ?")
_MPI_XML = expression(r'<(stdout|stderr|stddiag)(?: rank="(\d{1,7})")?>')
_HYDRA = expression(r"\[(\d{1,6})\] (?!finished |joined |started )")
# Not `[worker1]`, which may be a thread.
_HOST_IN_BRACKETS = expression(
    r"\[(?=[^\]]{0,128}?(?:[.\-]|\d\d))([A-Za-z0-9][\w.\-]{0,127})\]:?(?: |\Z)"
)
_HOST_PID = expression(
    r"\[([A-Za-z][\w.\-]{0,127}):(\d{1,7})(?: *:\d{1,7}:\d{1,7}| *:\d{1,7})?\](?: |\Z)"
)
_RAY = expression(
    r"\(([^()\n]{0,120}(?:\([^()\n]{0,80}\)[^()\n]{0,40})?)\bpid=(\w{1,40})"
    r"(?:, ip=([\w.:\-]{1,64}))?\)(?: |\Z)"
)
_RAYLET = expression(
    r"\((raylet|gcs_server|autoscaler)(?: \+[\dhms]{1,12})?(?:, ip=([\w.:\-]{1,64}))?\)(?: |\Z)"
)
# What an actor says of itself: vLLM's `VllmWorker rank=3`, `Trainer(rank=3)`.
_ACTOR_RANK = expression(r"(.*[^,]) rank=(\d{1,7})\Z|(.*)\(rank=(\d{1,7})\)\Z")
# vLLM names its workers by their rank in each kind of group that has several; an expert's group
# holds those of others. In the only other one that is its rank of all.
_ACTOR_GROUP = expression(r"(?:Vllm)?Worker[ _](?:TP|PP|DP)(\d{1,4})(?:[ _]EP\d{1,4})?\Z")
# SkyPilot's `(worker1, rank=1, pid=3277, ip=10.0.0.2)`: the rank is that of the node.
_SKY_NODE = expression(r"([\w.\-]{1,80}), rank=(\d{1,7})\Z")
_REPEATED = expression(
    r" \[repeated (\d{1,9})x across (?:cluster|all nodes)\](?: \(Ray [^\n]{0,400})?\s{0,8}\Z"
)

_IPV4 = expression(r"(?:\d{1,3}\.){3}\d{1,3}\Z")
_STEM = (
    "node|host|worker|wrk|master|gpu|dgx|hgx|compute|comp|server|srv|launcher|nid|cn|gn|gcn|ip|trn|"
    "algo|machine"
)
_NODE = expression(
    rf"(?:{_STEM})[a-z]{{0,2}}(?:-?\d{{1,6}}[a-z]?|-[a-z]\d{{1,4}})(?:-\d{{1,6}})*\Z",
    re.IGNORECASE,
)
# `train-job-worker-2`, `mycluster-gpu-12`: a part such as `worker` directly before the number.
_POD_NAME = expression(rf"[a-z0-9][a-z0-9\-]{{0,200}}-(?:{_STEM})s?-?\d{{1,6}}\Z", re.IGNORECASE)
# `v100x16-2`, `a100-01`, `h100-sxm-3`: a model of GPUs and a number.
_MODEL = expression(
    r"(?:dgx|hgx)?[abhlpv]\d{2,3}(?:x\d{1,2})?(?:-sxm\d?)?-\d{1,4}\Z", re.IGNORECASE
)
# `x3006c0s13b0n0` of HPE Cray EX: cabinet, chassis, slot, board and node.
_XNAME = expression(r"x\d{1,5}c\d{1,2}s\d{1,2}b\d{1,2}n\d{1,2}\Z")
# `r12u29`: rack and unit.
_RACK = expression(r"r(?:ack)?-?\d{1,3}-?u\d{1,3}\Z", re.IGNORECASE)
_RANK_AFTER = expression(r": (?:\[rank\d{1,7}\]:|\{\")")
_SHORT_GPU = expression(r"(?:gpu|server|ip)-?\d\Z", re.IGNORECASE)
_NUMBERED = expression(r"(?:([a-z]{2,5})\d{3,8}|[a-z]\d{4,8})\Z")
_NOT_NUMBERED = frozenset(
    {"cu", "cuda", "py", "sm", "rtx", "gtx", "iter", "step", "seed", "epoch", "top", "batch", "fp",
     "int", "uint", "rank", "eth", "err", "error", "code", "layer", "task", "line", "page", "port",
     "size", "len", "acc", "loss", "exp", "run", "test", "val", "utf", "sha", "md", "http", "job",
     "jid", "trial", "case", "issue", "ckpt"}
)  # fmt: skip
_DOMAIN = expression(
    r"(?:\.[a-z0-9\-]{1,63}){0,6}\.(?:com|org|net|edu|gov|local|internal|cluster|lan|localdomain|"
    r"hpc|ai|io|de|ch|fr|uk|jp|cn|nl|fi|eu|us)\Z",
    re.IGNORECASE,
)


def node_like(token: str) -> bool:
    """Does `token` look like the name of a machine? Sure rather than complete.

    An IPv4 address, `node01`, `worker-0`, `ip-10-0-5-7`, `c000001`, `train-job-worker-2`,
    `gpu12.cluster.example.org`; not `step100`, `cuda-12.1`, `gpu0`, `layer.0.weight`.
    """
    return names_node(token) or _is_numbered(token)


@lru_cache(maxsize=4096)
def names_node(token: str) -> bool:
    """Whether more than a number behind letters makes `token` like the name of a machine.

    `hf429`, `run123` and `cn0412` are alike: only their place says which of them is a machine.
    """
    if token == "localhost" or _IPV4.match(token):
        return True
    name, dot, domain = token.partition(".")
    if dot and not _DOMAIN.match(dot + domain):
        return False
    if _SHORT_GPU.match(name) or not name.isascii():
        return False
    if any(form.match(name) for form in (_NODE, _MODEL, _RACK, _XNAME)):
        return True
    return bool(_POD_NAME.match(name))


@lru_cache(maxsize=4096)
def _is_numbered(token: str) -> bool:
    name, dot, domain = token.partition(".")
    if not name.isascii() or _SHORT_GPU.match(name) or (dot and not _DOMAIN.match(dot + domain)):
        return False
    numbered = _NUMBERED.match(name)
    return numbered is not None and numbered[1] not in _NOT_NUMBERED


# `name: `; a column of its own, as of Ansible's or GNU parallel's, parts machines only.
_HOST_TAG = expression(r"([^\s:|]{1,128})(?::(?: |\Z)| \| |\t)")


def pdsh(line: str, at: int, prefix: Prefix, hosts: Collection[str] = ()) -> int:
    """`worker-0: ` of pdsh, clush, dsh and the like: a machine-like word, or one of `hosts`.

    In front of the tag of a rank, or of a JSON record, any word with a digit is one.
    """
    found = _HOST_TAG.match(line, at)
    if found is None:
        return -1
    token = found[1]
    named = line.startswith(":", found.end(1))
    if not (
        token in hosts
        or node_like(token)
        or (named and _RANK_AFTER.match(line, found.end(1)) and _coded(token))
    ):
        return -1
    if any(name not in OUTER for name in prefix.names):
        return -1
    prefix.host = token
    prefix.names.append("pdsh")
    return found.end()


def host_tag(line: str, at: int, prefix: Prefix) -> int:
    """`[node-0] ` of AzureML and of those who print like it: the name of a machine."""
    found = _HOST_IN_BRACKETS.match(line, at)
    if found is None or prefix.host is not None or not node_like(found[1]):
        return -1
    prefix.host = found[1]
    prefix.names.append("host-tag")
    return found.end()


def _coded(token: str) -> bool:
    """Whether a word begins like a name and holds a digit."""
    return token[:1].isalpha() and any(map(str.isdigit, token)) and token.isascii()


def label(line: str, at: int, prefix: Prefix) -> int:
    """` 3: ` of `srun --label` (right-aligned), `P0 3: ` of a heterogeneous job."""
    found = _LABEL.match(line, at)
    if found is None or any(name not in OUTER for name in prefix.names):
        return -1
    end = found.end()
    if _TENSORS.match(line, end):
        return -1
    if found[1] is None:  # in a heterogeneous job, task ids start anew in each component
        prefix.task = int(found[2])
    prefix.names.append("srun")
    return end


def mpi(line: str, at: int, prefix: Prefix) -> int:
    """`[1,3]<stderr>:` of Open MPI, PRRTE's and SageMaker's forms, `[0]<stderr>:` of horovodrun.

    PRRTE puts one space after the colon and Open MPI 4 none, so one single space goes.
    """
    found = _MPI.match(line, at)
    if found is None:
        return -1
    job, number, algo, host, pid, stream = found.groups()
    prefix.task = int(number)
    if job is None and host is None:  # horovodrun counts its processes by Horovod rank
        prefix.rank = int(number)
    if host or algo:
        prefix.host = host or algo
    if pid:
        prefix.pid = int(pid)
    prefix.stream = stream
    prefix.names.append("horovodrun" if job is None else "mpi")
    return _one_space(line, found.end())


def mpi_time(line: str, at: int, prefix: Prefix) -> int:
    """`<stdout>:` after the time of Open MPI's --timestamp-output (`at` is behind the time)."""
    found = _MPI_TIME.match(line, at)
    if found is None:
        return -1
    prefix.stream = found[1]
    prefix.names.append("mpi")
    return found.end()


def mpi_xml(line: str, at: int, prefix: Prefix) -> int:
    """`<stdout rank="3">` of Open MPI's --xml; the driver removes the closing tag."""
    found = _MPI_XML.match(line, at)
    if found is None:
        return -1
    prefix.stream = found[1]
    if found[2]:
        prefix.task = int(found[2])
    prefix.names.append("mpi-xml")
    return found.end()


def hydra(line: str, at: int, prefix: Prefix) -> int:
    """`[3] ` of MPICH's and Intel MPI's `-prepend-rank`; only at the very start of a line."""
    found = _HYDRA.match(line, at)
    if found is None or any(name not in OUTER for name in prefix.names):
        return -1
    prefix.task = int(found[1])
    prefix.names.append("hydra")
    return found.end()


def host_pid(line: str, at: int, prefix: Prefix) -> int:
    """`[gpu-033:3039 :0:2438] ` of UCX, `[node01:12345] ` of Open MPI's signal handler."""
    found = _HOST_PID.match(line, at)
    if found is None or not (
        node_like(found[1]) or line.startswith(("***", "[ "), found.end()) or " :" in found[0]
    ):
        return -1
    prefix.host, prefix.pid = found[1], int(found[2])
    prefix.names.append("ucx")
    return found.end()


# `[pod/train-worker-2/pytorch] ` of `kubectl logs --prefix`; a pod's name is its host name.
kubectl = row("kubectl", r"\[pod/(?P<pod>[a-z0-9][a-z0-9.\-]{0,252})/[\w.\-]{1,80}\](?: |\Z)")
# `train-worker-2 pytorch ` of stern: names as operators give them, known containers.
stern = row(
    "stern",
    r"(?P<pod>[a-z0-9][a-z0-9.\-]{0,200}-(?:(?:worker|master|launcher|chief|ps|head|node|rank)-\d{1,5}"
    r"|\d{1,5}-[a-z0-9]{5}|[a-f0-9]{8,10}-[a-z0-9]{5}))"
    r" (?:(?:pytorch|tensorflow|mpi|main|trainer|training|train|worker|master|launcher|ray-worker"
    r"|ray-head|app|node) (?! )|[a-z0-9][a-z0-9\-]{0,62} (?=\[|\d{4}-\d\d-\d\dT))",
    first=True,
)
# `train-worker-1  | ` of `docker compose logs`: service and replica, padded to one width; also
# `algo-1-x7k2p  | ` of SageMaker on one's own machine.
compose = row(
    "compose",
    r"(?P<host>[a-z0-9][\w.\-]{0,62}[-_]\d{1,4}|algo-\d{1,4}-[a-z0-9]{5}) {2,64}\| ",
    first=True,
)
# `{trainer-3} `: the name of a task and its number.
braces = row("braces", r"\{(?P<host>[A-Za-z][\w.]{0,60}(?:-[\w.]{1,60}){0,8}-\d{1,5})\}:?(?: |\Z)")
# `[GPU3] ` of the examples of torch.
device = row("device", r"\[(?:GPU|NPU|CUDA)[ :_]?(?P<dev>\d{1,3})\]:? ")
# `[RANK 0] ` of accelerate's get_logger (1.13+).
accelerate = row("accelerate", r"\[RANK (?P<rank>\d{1,7})\](?: |\Z)")
# `rank0[1234][MainThread]: INFO: ` of Composer.
composer = row(
    "composer",
    r"rank(?P<rank>\d{1,7})\[(?P<pid>\d{1,7})\]\[[\w\-]{1,80}\]: "
    rf"(?:(?P<level>{LEVEL}): (?:[\w.]{{1,120}}: )?)?",
)
# `[+  473.320] `: the time since something that nobody knows tells no time.
elapsed = row("elapsed", r"\[\+ {0,8}\d{1,7}\.\d{1,6}\](?: |\Z)")
# `704.7s<tab>1339<tab>` of a downloaded log of a Kaggle notebook.
kaggle = row("kaggle", r"\d{1,7}(?:\.\d{1,3})?s\t\d{1,7}\t")


def ray(line: str, at: int, prefix: Prefix) -> int:
    """`(WorkerDict pid=1, ip=10.0.0.2) `, `(raylet) `, `(VllmWorker rank=3 pid=7) `, `(pid=5) `."""
    found = _RAY.match(line, at)
    if found is None:
        found = _RAYLET.match(line, at)
        if found is None:
            return -1
        actor, pid, ip = found[1], "", found[2]
    else:
        actor, pid, ip = found[1].strip(" ,"), found[2], found[3]
    if ip:
        prefix.host = ip
    if actor:
        prefix.actor = _of_itself(actor, prefix)
    if pid.isdecimal() and len(pid) < 9:
        prefix.pid = int(pid)
    prefix.names.append("ray")
    return found.end()


def _of_itself(actor: str, prefix: Prefix) -> str:
    """The name of an actor or a node, without the rank that it says."""
    if node := _SKY_NODE.match(actor):
        prefix.host, prefix.task = node[1], int(node[2])
        return node[1]
    if worker := _ACTOR_RANK.match(actor):
        prefix.rank = int(worker[2] or worker[4])
        return worker[1] or worker[3]
    if group := _ACTOR_GROUP.match(actor):
        prefix.group_rank = int(group[1])
    return actor


def repeated(message: str) -> tuple[str, int]:
    """The message without Ray's ` [repeated 7x across cluster]` and how often it was printed."""
    at = message.rfind(" [repeated ")
    found = _REPEATED.match(message, at) if at >= 0 else None
    return (message[:at], int(found[1])) if found else (message, 1)


def _one_space(line: str, at: int) -> int:
    return at + 1 if line.startswith(" ", at) and not line.startswith(" ", at + 1) else at


_RANK = r"(?i:(?:global[ _]?|local[ _]?)?rank)"
_NUMBER = r"(\d{1,7})(?:/\d{1,7})?"
_IN_BRACKETS = expression(rf"[\[(<]({_RANK})[ _=:#\-]?{_NUMBER}[\])>]:?(?: |(?=\[)|\Z)")
# With what nobody puts behind a number amid a sentence.
_BARE = expression(rf"({_RANK})[ _#]?{_NUMBER}(?:(?::| \|| -)(?: |\Z)|(?<=\w)\t)")
_OF_A_GROUP = expression(r"\[Rank \d{1,7}\]")
TAG_INITIALS = frozenset("gGlLrR")  # letters with which the name of a rank begins


def rank_tag(line: str, at: int, prefix: Prefix) -> int:
    """`Rank 3: `, `(rank 3) `, `rank3 | `, `[rank 3/8] `: global unless it calls itself local.

    `[Rank 3]` is left alone: torch prints it of a group's rank.
    """
    if _OF_A_GROUP.match(line, at):
        return -1
    form = _BARE if line[at].isalpha() else _IN_BRACKETS
    found = form.match(line, at)
    if found is None:
        return -1
    name, number = found[1].lower(), int(found[2])
    if name.startswith("local"):
        prefix.local_rank = number
    else:
        prefix.rank = number
    prefix.names.append("rank-tag")
    return found.end()
