"""What the name of a file says about who wrote it; silence where names are ambiguous."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from diagnose.lazy import expression

_LENGTH = 4096
_EXTENSIONS = expression(
    r"(?i)(?:\.(?:log|txt|out|err|json|jsonl|gz|zst|xz|bz2|pickle|pkl|stdout|stderr))+(?:\.\d{1,3})?\Z"
)
_NUMBER = expression(r"\d{1,7}\Z")
_ATTEMPT = expression(r"(?i)(?:^|[_.\-])(?:attempt|restart)[_\-]?(\d{1,4})\Z")
_PACKED = expression(r"(?<=[^.])\.(?:gz|xz|bz2|zst)\Z", re.IGNORECASE)
_TORCHRUN = frozenset({"stdout.log", "stderr.log", "error.json"})
_PADDLE = expression(r"workerlog\.(\d{1,5})\Z")
_MPI_RANK = expression(r"(?i)rank\.(\d{1,7})\Z")
_RANKS = expression(
    r"(?i)(?:^|[^a-z0-9])(?:(?P<of>[a-z]{1,10})[_\-]|(?P<glued>local|global|node))?"
    r"rank[_.\-=]?(?P<number>\d{1,7})(?!\d)"
)
_TASK = expression(
    r"(?i)(?:^|[_.\-])(?:task|process|proc)[_.\-]?(\d{1,7})(?![\da-z])|^worker_(\d{1,7})\Z"
)
_NODE = expression(r"(?i)(?:^|[_.\-])(?:node|machine)_(\d{1,6})(?![\da-z])")
_PID = expression(r"(?i)(?:^|[_.\-])pid[_.\-]?(\d{1,7})(?!\d)")
_RAY = expression(
    r"(?i)(?:worker|python-core-(?:worker|driver))-[0-9a-f]{16,64}-[0-9a-f]{4,16}-(\d{1,7})\Z"
)
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_POD_FOLDER = expression(rf"(?i)[^_]{{1,63}}_([a-z0-9][a-z0-9.\-]{{0,252}})_{_UUID}\Z")
_CONTAINER_FILE = expression(
    r"(?i)([a-z0-9][a-z0-9.\-]{0,252})_[a-z0-9\-]{1,63}_[\w.\-]{1,80}-[0-9a-f]{64}\Z"
)
_HOST_FOLDER = expression(
    r"(?i)(?:node|host|dgx|hgx|nid|cn|gn|compute|worker|master|gpu)-?\d{1,6}\Z"
)
# `dmesg-node-b.txt`: what a machine's own log is called, and behind it the machine.
_OWN_LOG = expression(r"(?i)(?:dmesg|syslog|messages|journal(?:ctl)?|kern(?:el)?|nvidia-smi)[_.\-]")
_LETTERED = expression(r"(?i)(?:node|host)-[a-z]\Z")
# Ranks of something smaller than the job; any other word before "rank" belongs to a longer name.
_PARTIAL = frozenset(
    {"tp", "pp", "dp", "cp", "ep", "mp", "sp", "group", "pg", "data", "pipe", "model"}
)


@dataclass(slots=True)
class PathHints:
    """Who wrote a file, as far as its path tells; each kind of number as in `Prefix`.

    `node` is a node's number in the job (0-based), `host` a machine's name, or a pod's where `pod`
    is set, `attempt` the 0-based start of the job, `task` the launcher's task id.
    """

    rank: int | None = None
    local_rank: int | None = None
    node: int | None = None
    host: str | None = None
    attempt: int | None = None
    task: int | None = None
    pid: int | None = None
    pod: bool = False


@lru_cache(maxsize=4096)  # the jobs of a fleet name their files alike
def read_path(path: str) -> PathHints:
    """What `path` of a file says; slashes of either kind, or `!` behind an archive, divide it.

    torchrun's `attempt_0/3/stderr.log` (3 is a LOCAL rank), `rank_3.log`, `log_rank_12.out`,
    `global_rank_3`, `local_rank_1`, `node_rank_2`, `job.node01.3.log` (host, task), `node01.log`,
    `train-worker-2.log`, Paddle's
    `workerlog.3` (a local rank), Ray's `worker-<id>-<job>-<pid>.out`, Open MPI's `1/rank.3/stdout`,
    kubelet's folders. The innermost part that says something wins. What is given is shared.
    """
    parts = [part for part in re.split(r"[/\\\\!]", path[-_LENGTH:]) if part not in ("", ".")]
    hints = PathHints()
    if not parts:
        return hints
    folders, name = parts[:-1], _PACKED.sub("", parts[-1])
    _layouts(folders, name, hints)
    stem = _EXTENSIONS.sub("", name)
    _words(stem, hints)
    _file_host(stem, hints)
    for folder in reversed(folders):
        _words(folder, hints)
        if hints.host is None and _HOST_FOLDER.match(folder):
            hints.host = folder
    return hints


def _layouts(folders: list[str], name: str, hints: PathHints) -> None:
    """Folder layouts of known tools."""
    parent = folders[-1] if folders else ""
    if name.lower() in _TORCHRUN and _NUMBER.match(parent):
        hints.local_rank = int(parent)
    paddle = _PADDLE.match(name)
    if paddle:
        hints.local_rank = int(paddle[1])
    mpi = _MPI_RANK.match(parent)
    if mpi and name in ("stdout", "stderr"):
        hints.task = int(mpi[1])
        folders.pop()
    for above, folder in pairwise(folders):
        if above == "nodes" and folder not in ("nodes", ""):  # of a bundle of ours
            hints.host = folder
    for folder in folders:
        pod = _POD_FOLDER.match(folder)
        if pod:
            hints.host, hints.pod = pod[1], True
            restarts = name.partition(".")[0]  # kubelet names the file by restarts of the container
            hints.attempt = int(restarts) if _NUMBER.match(restarts) else None


def _words(text: str, hints: PathHints) -> None:
    """Numbers with their meaning spelled out: `rank_3`, `task3`, `attempt_1`, `pid_99`."""
    for found in _RANKS.finditer(text):
        number, of = int(found["number"]), (found["of"] or found["glued"] or "").lower()
        if of == "local":
            hints.local_rank = number if hints.local_rank is None else hints.local_rank
        elif of in ("node", "machine"):
            hints.node = number if hints.node is None else hints.node
        elif of not in _PARTIAL and hints.rank is None:
            hints.rank = number
    for field, pattern in (
        ("task", _TASK),
        ("node", _NODE),
        ("pid", _PID),
        ("attempt", _ATTEMPT),
        ("pid", _RAY),
    ):
        found_one = pattern.search(text) if getattr(hints, field) is None else None
        if found_one:
            setattr(hints, field, int(found_one[1] or found_one[2]))


def _file_host(stem: str, hints: PathHints) -> None:
    container = _CONTAINER_FILE.match(stem)
    if container:
        hints.host, hints.pod = container[1], True
        return
    own = _OWN_LOG.match(stem)
    stem = stem[own.end() :] if own else stem
    if hints.host is None and (node_like(stem) or (own and _LETTERED.match(stem))):
        hints.host = stem
        return
    # %x.%N.%t and the like: a machine between separators, then the task (NCCL's %h.%p: the pid).
    for separators in (r"[._]", r"[._\-]"):
        words = re.split(separators, stem)
        for position, word in enumerate(words[:-1]):
            following = words[position + 1]
            numbered = _NUMBER.match(following)
            # A number of letters and digits is a machine where its task comes next.
            if _NUMBER.match(word) or not (node_like if numbered else names_node)(word):
                continue
            hints.host = hints.host or word
            if numbered:
                if "nccl" in stem.lower():
                    hints.pid = int(following) if hints.pid is None else hints.pid
                elif hints.rank is None and hints.task is None:
                    hints.task = int(following)
            return
        if words and names_node(words[-1]) and len(words) > 1:
            hints.host = hints.host or words[-1]
            return


# --- names of machines, as clusters, clouds and makers give them ----------------------------------

_IPV4 = expression(r"(?:\d{1,3}\.){3}\d{1,3}\Z")
_STEM = (
    "node|host|worker|wrk|master|gpu|dgx|hgx|compute|comp|server|srv|launcher|nid|cn|gn|gcn|ip|trn|"
    "algo|machine"
)
_NODE_NAME = expression(
    rf"(?:{_STEM})[a-z]{{0,2}}(?:-?\d{{1,6}}[a-z]?|-[a-z]\d{{1,4}})(?:-\d{{1,6}})*\Z", re.IGNORECASE
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
    if any(form.match(name) for form in (_NODE_NAME, _MODEL, _RACK, _XNAME)):
        return True
    return bool(_POD_NAME.match(name))


@lru_cache(maxsize=4096)
def _is_numbered(token: str) -> bool:
    name, dot, domain = token.partition(".")
    if not name.isascii() or _SHORT_GPU.match(name) or (dot and not _DOMAIN.match(dot + domain)):
        return False
    numbered = _NUMBERED.match(name)
    return numbered is not None and numbered[1] not in _NOT_NUMBERED
