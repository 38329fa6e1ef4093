"""Prefixes of launchers and collectors: srun, pdsh, MPI, Ray, Kubernetes, docker (FORMATS 1.4).

Function contract as in torch_prefixes.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache

from diagnose.lazy import expression
from diagnose.parse.who import Prefix

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
_HOST_PID = expression(
    r"\[([A-Za-z][\w.\-]{0,127}):(\d{1,7})(?: *:\d{1,7}:\d{1,7}| *:\d{1,7})?\](?: |\Z)"
)
_POD = expression(r"\[pod/([a-z0-9][a-z0-9.\-]{0,252})/[\w.\-]{1,80}\](?: |\Z)")
_STERN = expression(
    r"([a-z0-9][a-z0-9.\-]{0,200}-(?:(?:worker|master|launcher|chief|ps|head|node|rank)-\d{1,5}"
    r"|\d{1,5}-[a-z0-9]{5}|[a-f0-9]{8,10}-[a-z0-9]{5}))"
    r" (?:(?:pytorch|tensorflow|mpi|main|trainer|training|train|worker|master|launcher|ray-worker"
    r"|ray-head|app|node) (?! )|[a-z0-9][a-z0-9\-]{0,62} (?=\[|\d{4}-\d\d-\d\dT))"
)
_COMPOSE = expression(r"([a-z0-9][\w.\-]{0,62}[-_]\d{1,4}) {2,64}\| ")
_RAY = expression(
    r"\(([^()\n]{0,120}(?:\([^()\n]{0,80}\)[^()\n]{0,40})?)\bpid=(\w{1,40})"
    r"(?:, ip=([\w.:\-]{1,64}))?\)(?: |\Z)"
)
_RAYLET = expression(
    r"\((raylet|gcs_server|autoscaler)(?: \+[\dhms]{1,12})?(?:, ip=([\w.:\-]{1,64}))?\)(?: |\Z)"
)
_WORKER_RANK = expression(r"(.*\S) rank=(\d{1,7})\Z")
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
# `r12u29`: rack and unit.
_RACK = expression(r"r(?:ack)?-?\d{1,3}-?u\d{1,3}\Z", re.IGNORECASE)
_RANK_BEHIND = expression(r": (?:\[rank\d{1,7}\]:|\{\")")
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


@lru_cache(maxsize=4096)
def node_like(token: str) -> bool:
    """Does `token` look like the name of a machine? Sure rather than complete.

    An IPv4 address, `node01`, `worker-0`, `ip-10-0-5-7`, `c000001`, `train-job-worker-2`,
    `gpu12.cluster.example.org`; not `step100`, `cuda-12.1`, `gpu0`, `layer.0.weight`.
    """
    if token == "localhost" or _IPV4.match(token):
        return True
    name, dot, domain = token.partition(".")
    if dot and not _DOMAIN.match(dot + domain):
        return False
    if _SHORT_GPU.match(name) or not name.isascii():
        return False
    if _NODE.match(name) or _MODEL.match(name) or _RACK.match(name):
        return True
    numbered = _NUMBERED.match(name)
    if numbered:
        return numbered[1] not in _NOT_NUMBERED
    return bool(_POD_NAME.match(name))


def pdsh(line: str, at: int, prefix: Prefix, hosts: Collection[str] = ()) -> int:
    """`worker-0: ` of pdsh, clush, dsh and the like: a machine-like word, or one of `hosts`.

    In front of the tag of a rank, or of a JSON record, any word with a digit is one.
    """
    colon = line.find(":", at, at + 130)
    if colon <= at or not (line.startswith(" ", colon + 1) or colon + 1 == len(line)):
        return -1
    token = line[at:colon]
    if " " in token or not (
        token in hosts or node_like(token) or (_RANK_BEHIND.match(line, colon) and _coded(token))
    ):
        return -1
    if any(name not in OUTER for name in prefix.names):
        return -1
    prefix.host = token
    prefix.names.append("pdsh")
    return min(colon + 2, len(line))


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


def kubectl(line: str, at: int, prefix: Prefix) -> int:
    """`[pod/train-worker-2/pytorch] ` of `kubectl logs --prefix`; a pod's name is its host name."""
    found = _POD.match(line, at)
    if found is None:
        return -1
    prefix.host = found[1]
    prefix.names.append("kubectl")
    return found.end()


def stern(line: str, at: int, prefix: Prefix) -> int:
    """`train-worker-2 pytorch ` of stern: names as operators give them, known containers."""
    found = _STERN.match(line, at) if not prefix.names else None
    if found is None:
        return -1
    prefix.host = found[1]
    prefix.names.append("stern")
    return found.end()


def compose(line: str, at: int, prefix: Prefix) -> int:
    """`train-worker-1  | ` of `docker compose logs`: service and replica, padded to one width."""
    found = _COMPOSE.match(line, at) if not prefix.names else None
    if found is None:
        return -1
    prefix.host = found[1]
    prefix.names.append("compose")
    return found.end()


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
    worker = _WORKER_RANK.match(actor)
    if worker and worker[1].startswith("Vllm"):
        actor, prefix.rank = worker[1], int(worker[2])
    if actor:
        prefix.actor = actor
    if pid.isdecimal() and len(pid) < 9:
        prefix.pid = int(pid)
    if ip:
        prefix.host = ip
    prefix.names.append("ray")
    return found.end()


def repeated(message: str) -> tuple[str, int]:
    """The message without Ray's ` [repeated 7x across cluster]` and how often it was printed."""
    at = message.rfind(" [repeated ")
    found = _REPEATED.match(message, at) if at >= 0 else None
    return (message[:at], int(found[1])) if found else (message, 1)


def _one_space(line: str, at: int) -> int:
    return at + 1 if line.startswith(" ", at) and not line.startswith(" ", at + 1) else at
