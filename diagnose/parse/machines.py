"""Names of machines, as clusters, clouds and makers give them."""

from __future__ import annotations

import re
from functools import lru_cache

from diagnose.lazy import expression

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
