"""What a pattern may capture."""

from __future__ import annotations

# Named groups a pattern may use, and their type in the timeline. Anything else is refused, so that
# the same fact has the same name in every entry. `ranks` lists look like "0, 3", "0-3,7" or "{1}".
CAPTURES: dict[str, type] = {
    # who
    "rank": int,  # global rank
    "group_rank": int,  # rank inside the process group: never a global rank by itself
    "local_rank": int,
    "other_rank": int,
    "from_rank": int,
    "ranks": list,
    "missing": list,
    "world_size": int,
    "joined": int,
    "nodes": int,
    "host": str,
    "peer": str,  # host, address or endpoint of the other side
    "pid": int,
    "dev": int,  # CUDA device index
    "busid": str,
    "nic": str,
    # collectives
    "group": str,
    "group_id": int,
    "group_desc": str,
    "seq": int,
    "other_seq": int,
    "op": str,
    "other_op": str,
    "shape": str,
    "other_shape": str,
    "numel_in": int,
    "numel_out": int,
    "timeout_ms": int,
    "timeout_s": int,
    "elapsed_ms": int,
    "elapsed_s": int,
    "enqueued": int,
    "started": int,
    "completed": int,
    # ends
    "exitcode": int,
    "signal": str,  # name or number
    "xid": int,
    "status": str,
    "errno": str,
    "reason": str,
    "closes": str,  # who closes its communicator, or its own proxy, at an end of whatever kind
    "attempts_left": int,
    # progress
    "step": int,
    "total": int,
    "percent": float,
    "elapsed": str,  # tqdm's [H:]MM:SS
    "what": str,  # what the bar or phase is about
    # facts and free text
    "version": str,
    "name": str,
    "value": str,
    "type": str,
    "message": str,
    "path": str,
    "port": int,
    "file": str,
    "line": int,
    "func": str,
    "size": str,
    "key": str,
    "time": str,
}
