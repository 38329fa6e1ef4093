"""What the kernel says of the ranks' processes, and the stacks that these printed into their logs.

A rank stopped by a signal has the stack of whatever it did before, a read of a mount that does not
answer that of a read, and who waits for a dead worker that of a wait. Where no stacks could be
taken, this is all there is.

A dump shows where a process was while it ran. A traceback does where it waited for others, or where
somebody ended it; an exception of its own is another matter. What a job did below a dump says that
it was taken in passing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from diagnose.catalog.schema import Catalog
from diagnose.infer.events.exceptions import Printed, last_printed
from diagnose.infer.stacks.classify import Place, places, unranked
from diagnose.infer.stacks.frame_table import State
from diagnose.infer.stacks.groups import PlaceClass, fold
from diagnose.lazy import expression
from diagnose.parse.prefix import peel
from diagnose.parse.tracebacks import Frame, Kind, Stack
from diagnose.timeline.event import Event, Timeline

if TYPE_CHECKING:
    from diagnose.parse.probes import Look, Wait

_FILES = expression(
    r"p?(?:read|write)v?2?(?:64)?|open(?:at2?)?|close|[fl]?stat(?:x|fs)?|newfstatat|getdents(?:64)?"
    r"|f(?:data)?sync|f?truncate|fallocate|rename(?:at2?)?|mkdir(?:at)?|rmdir|unlink(?:at)?"
    r"|readlink(?:at)?|f?access(?:at2?)?|copy_file_range|flock|fcntl"
)
# File systems whose answer comes from another machine or process.
_REMOTE = expression(
    r"nfs\d?|fuse(?:\.\S+|blk)?|lustre|ceph|gpfs|mmfs|beegfs\S*|wekafs|cifs|smb3|9p|virtiofs|afs|pvfs2"
    r"|orangefs|glusterfs|vboxsf|daos\S*"
)
# Functions of the kernel in which those wait.
_STORAGE = expression(
    r"nfs|rpc_|fuse|request_wait_answer|folio_wait|wait_on_page|io_schedule|bit_wait_io|ll_|cl_|ptlrpc"
    r"|ceph|cxiWait|cifs|jbd2|xfs|ext4|btrfs|d_alloc_parallel|blk_"
)
_DRIVER = expression(r"nv_|nvidia|uvm_|rm_|os_acquire|amdgpu|kfd|ib_|mlx")
_PIPES = expression(r"pipe|fifo|wait_for_partner")
# Through what the main process hears of its workers.
_CHANNELS = expression(
    r"(?:.*/)?(?:multiprocess(?:ing)?/\w+|torch/(?:utils/data|multiprocessing)/.*"
    r"|concurrent/futures/process)\.py"
)
_HELD: frozenset[State] = frozenset({"python", "sleep", "unknown"})
_AT_WORK: frozenset[State] = frozenset({"python", "preprocessing", "evaluation", "compile"})
_BUSY = 0.6  # of a CPU
_IDLE = 0.1
_FRAME = expression(
    r'File "(?P<file>[^"]{1,1000})", line (?P<line>\d{1,9}),? in (?P<func>\S{1,300})'
    r"|(?P<spy>\S{1,300}) \((?P<path>[^()]{1,1000}):(?P<number>\d{1,9})\)\s*\Z"
)
_OUTERMOST = expression(r", line \d{1,9} in <module>\Z")
_LAST_LINES = 12  # from the innermost frame of a stack to what ended its process
_CUT_LINES = 2  # at the start of a source, one of them cut
# Lines by rank and source.
Ends = Mapping[tuple[int | None, str], Sequence[int]]


def refined(
    places: Iterable[Place], looks: Iterable[Look], silent_mounts: Collection[str]
) -> list[Place]:
    """The places of all ranks, by rank, with what the kernel says of their processes."""
    known = _merged(looks)
    if not known:
        return [*places]
    by_rank = {place.rank: place for place in places}
    below: dict[tuple[str | None, int | None], list[Look]] = defaultdict(list)
    for look in known:
        below[look.host, look.parent].append(look)
    for look in known:
        if look.role == "rank" and look.rank is not None:
            children = below[look.host, look.pid]
            by_rank[look.rank] = _seen(by_rank.get(look.rank), look, children, silent_mounts)
    for rank, look in _absent(known).items():
        gone = by_rank.get(rank) or _bare(rank, look)
        by_rank[rank] = replace(
            gone, state="exited", detail="it has no process on its node", certain=True,
            key=("exited",), vague=False, call=None, op=None,
        )  # fmt: skip
    return [place for _, place in sorted(by_rank.items())]


def _merged(looks: Iterable[Look]) -> list[Look]:
    """One look a process: what several documents say of it."""
    found: dict[tuple[str | None, int], Look] = {}
    for look in sorted(looks, key=lambda look: look.source):
        key = (look.host, look.pid)
        before = found.get(key)
        if before is None:
            found[key] = look
            continue
        added = {
            field.name: value
            for field in fields(look)
            if (value := getattr(look, field.name)) not in (None, "", ())
            and getattr(before, field.name) in (None, "", ())
        }
        # The document that says what it did is the one to look into.
        source = look.source if look.activity else before.source
        found[key] = replace(before, **{**added, "source": source})
    return list(found.values())


def _absent(known: Iterable[Look]) -> Mapping[int, Look]:
    """Ranks that their node should have and has not, with a look at a neighbour of each."""
    here: dict[str | None, dict[int, Look]] = defaultdict(dict)
    for look in known:
        if look.role == "rank" and look.rank is not None and look.local_rank is not None:
            here[look.host][look.local_rank] = look
    found = {}
    for neighbours in here.values():
        first = min(neighbours)
        look = neighbours[first]
        if look.rank is None or look.ranks_here is None or look.ranks_here > 1024:
            continue
        if any(one.rank != look.rank + local - first for local, one in neighbours.items()):
            continue  # ranks do not follow each other on this node
        for local in range(look.ranks_here):
            if local not in neighbours:
                found[look.rank + local - first] = look
    return found


def _bare(rank: int, look: Look) -> Place:
    """The place of a rank of which there is no stack."""
    stack = Stack(look.source, 1, rank, look.host, look.pid, "", True, "", False, (), "kernel")
    wait = _main(look)
    doing = {"running": "it uses a CPU", "waiting": "it sleeps"}.get(look.activity, "no stack")
    detail = f"{doing}, in {wait.call}" if wait and wait.call else doing
    return Place(rank, "unknown", detail, None, None, None, None, (), True, False, stack)


def _seen(
    place: Place | None, look: Look, children: Iterable[Look], silent_mounts: Collection[str]
) -> Place:
    """A place with what the kernel says of the rank's process."""
    assert look.rank is not None
    place = place or _bare(look.rank, look)
    place = replace(place, still=_still(look))
    blocked = _blocked(place, look, children, silent_mounts)
    if blocked is not None:
        state, detail = blocked
        return replace(
            place, state=state, detail=detail, certain=True, vague=False, call=None, op=None,
            key=(state, place.site or ""),
        )  # fmt: skip
    cpu, wait = look.cpu or 0.0, _main(look)
    if place.state in _HELD and place.stack.owns_gil and look.activity and cpu < _IDLE:
        return replace(place, state="gil_held", vague=False)
    if place.state in _AT_WORK and cpu >= _BUSY:
        return replace(place, detail=f"{place.detail}, at {cpu:.0%} of a CPU", vague=False)
    if place.state == "unknown" and place.key and wait is not None:
        asleep = _asleep(wait)
        if asleep is not None:
            return replace(place, state=asleep, vague=False)
    return place


def _blocked(
    place: Place, look: Look, children: Iterable[Look], silent_mounts: Collection[str]
) -> tuple[State, str] | None:
    """What keeps a process from making any step, and the words for it."""
    if look.activity == "ended":
        # Who waited and ended meanwhile was ended by its own watchdog, or by its launcher.
        return None if place.waits else ("exited", "its process has ended")
    if look.activity == "stopped":
        return "stopped", "SIGSTOP or SIGTSTP; it goes on with SIGCONT"
    if _for_workers(place):
        for child in children:
            if child.role == "loader" and child.activity in ("ended", "stopped"):
                what = "has died" if child.activity == "ended" else "is stopped by a signal"
                return "data_loading", f"its worker process {child.pid} {what}"
    wait = _main(look)
    if wait is None or look.activity not in ("waiting", "stuck"):
        return None
    call = f"{wait.call or wait.where} of {wait.file}" if wait.file else wait.call or wait.where
    file = wait.file.startswith("/")
    if file and _PIPES.search(wait.where):
        return "pipe", call
    if (
        file
        and _FILES.fullmatch(wait.call)
        and (wait.mount in silent_mounts or _REMOTE.fullmatch(wait.type))
    ):
        silent = ", which gives no answer" if wait.mount in silent_mounts else ""
        return "file_read", f"{call} on {wait.mount} ({wait.type}){silent}"
    if look.activity != "stuck":
        return None
    if _DRIVER.search(wait.where):
        return "device_driver", f"{call}, in the kernel's {wait.where} (D state)"
    if _STORAGE.search(wait.where):
        where = f" on {wait.mount} ({wait.type})" if wait.mount else ""
        return "file_read", f"{call}{where}, in the kernel's {wait.where} (D state)"
    return "kernel_wait", f"{call}, in the kernel's {wait.where}"


def _still(look: Look) -> bool | None:
    """Whether its main thread made no step; None of one that polls, which shows neither."""
    if look.switches is None or (look.cpu or 0.0) >= _BUSY:
        return None
    return look.switches == 0


def _for_workers(place: Place) -> bool:
    """Whether it may wait for its worker processes: by its frames, or none say otherwise."""
    frames = place.stack.frames
    return not frames or any(_CHANNELS.fullmatch(frame.file) for frame in frames)


def _main(look: Look) -> Wait | None:
    return next((wait for wait in look.waits if wait.thread == look.pid), None)


def _asleep(wait: Wait) -> State | None:
    """What a system call says of a thread whose frames say nothing."""
    if wait.call in ("clock_nanosleep", "nanosleep", "pause"):
        return "sleep"
    return "lock" if wait.call in ("futex", "wait4", "waitid", "semtimedop") else None


def with_printed(
    classes: list[PlaceClass], lone: Sequence[Place], timeline: Timeline, catalog: Catalog
) -> tuple[list[PlaceClass], list[Place]]:
    """What documents show of ranks and of other processes, with what these printed.

    Of a rank of which there is a document that counts, unless all it says is that the process has
    ended: what it ended of, such as a wait that timed out, is in what it printed.
    """
    known = {place.rank: place for group in classes for place in group.places}
    shown, alone = _printed(timeline, catalog, [place.stack for place in known.values()])
    more = {place.rank: place for place in shown if place.running or _compares(place)}
    waited = {rank for rank, place in more.items() if place.waits}
    more |= {
        rank: place
        for rank, place in known.items()
        if place.state != "exited" or rank not in waited
    }
    return fold(more.values()) if more != known else classes, [*lone, *alone]


def _compares(place: Place) -> bool:
    """Whether a traceback shows where its process was, and not only what it died of."""
    return place.waits or place.stack.kind == "interrupt"


def _printed(
    timeline: Timeline, catalog: Catalog, beside: Sequence[Stack]
) -> tuple[list[Place], list[Place]]:
    """The places of ranks, and those of processes whose rank no line tells.

    `beside` are the stacks of documents.
    """
    printed = last_printed(timeline)
    outside, deaths = _ended(timeline, catalog), _lines(timeline.signalling("dies"))
    stacks = [_stack(one, number, outside, deaths) for number, one in enumerate(printed)]
    found = [
        stack
        for stack, one in zip(stacks, printed, strict=True)
        if stack.frames and not (one.dump and _in_passing(one, timeline))
    ]
    found = [s._replace(frames=()) if _is_cut(printed[s.dump], timeline) else s for s in found]

    def phased(place: Place) -> Place:
        """With the phase that the catalog knows of one of its frames, if none says it here."""
        named = [event.phase for event in printed[place.stack.dump].frames if event.phase]
        return replace(place, phase=place.phase or (named[-1] if named else None))

    dumps = [stack for stack in found if printed[stack.dump].dump]
    shown = [phased(place) for place in places(found, beside)]
    return shown, [phased(one) for one in unranked(dumps)]


def _stack(printed: Printed, number: int, outside: Ends, deaths: Ends) -> Stack:
    """The stack of the thread that printed it, as one read from a file.

    What a process dumps as it dies of a signal shows where that reached it, and no hang.
    """
    frames: list[Frame] = []
    at = None
    for event in reversed(printed.frames):
        frame = _frame(event)
        if frame is not None and event.place != at:
            frames.append(frame)
        at = event.place
    inner = printed.frames[-1]
    ends = outside.get((inner.rank, inner.source), ())
    if printed.dump:
        ends = deaths.get((inner.rank, inner.source), ())
        interrupted = any(inner.line - _LAST_LINES <= line < inner.line for line in ends)
    else:
        interrupted = any(inner.line < line <= inner.line + _LAST_LINES for line in ends)
    otherwise: Kind = "faulthandler" if printed.dump else "traceback"
    return Stack(
        inner.source, inner.line, inner.rank, inner.host, inner.pid, "", True, "", False,
        tuple(frames), "interrupt" if interrupted else otherwise, dump=number,
    )  # fmt: skip


def _frame(event: Event) -> Frame | None:
    found = _FRAME.search(event.text)
    if found is None:
        return None
    file, line = found["file"] or found["path"], found["line"] or found["number"]
    return Frame(found["func"] or found["spy"], file, int(line), native=False)


def _is_cut(printed: Printed, timeline: Timeline) -> bool:
    """Whether a rank's dump has lost its head or its tail where its source was cut."""
    from diagnose.parse.stacks import begins_thread  # noqa: PLC0415  few logs have dumps

    source, rank = printed.frames[0].source, printed.frames[0].rank
    first, last = (end(event.line for event in printed.frames) for end in (min, max))
    begins, cut = first <= _CUT_LINES, source in timeline.truncated
    if not printed.dump or rank is None or not (begins or cut):
        return False
    edges = timeline.once(_edges).get((source, rank), {})
    if begins and not any(begins_thread(text) for line, text in edges.items() if line < first):
        # The innermost frames were in what was cut off. A line of them may be left, so that the
        # first whole one is the second.
        return True
    # Python prints the main thread last, so that who is cut off amid a dump shows another.
    rest = [edges[line] for line in sorted(edges) if line >= last]
    inside = all(_FRAME.search(text) or begins_thread(text) for text in rest[:-1])
    return cut and bool(rest) and inside and not _OUTERMOST.search(rest[-1])


def _edges(timeline: Timeline) -> Mapping[tuple[str, int | None], Mapping[int, str]]:
    """The messages of the first and last lines of each source, by their author and line."""
    found: dict[tuple[str, int | None], dict[int, str]] = defaultdict(dict)
    for event in timeline.kind("edge"):
        found[event.source, event.rank][event.line] = peel(event.text).message
    return found


def _in_passing(printed: Printed, timeline: Timeline) -> bool:
    last = max(printed.frames, key=lambda event: event.line)
    return worked_below(last.source, last.line, timeline, last.rank)


def worked_below(source: str, line: int, timeline: Timeline, rank: int | None = None) -> bool:
    """Whether steps stand below a line of a source: a stack there was taken in passing.

    Steps of other ranks say nothing of one that is known.
    """
    steps = timeline.once(_last_steps)
    of = [(source,)] if rank is None else [(source, None), (source, rank)]
    return any(steps.get(who, -1) > line for who in of)


def _last_steps(timeline: Timeline) -> Mapping[tuple[str | int | None, ...], int]:
    """The line of the last step in each source, and of each rank in it; of no rank as None."""
    found: dict[tuple[str | int | None, ...], int] = {}
    for event in timeline.kind("progress"):  # the lines of a source are in order
        found[event.source,] = found[event.source, event.rank] = event.line
    return found


def _ended(timeline: Timeline, catalog: Catalog) -> Ends:
    """Where somebody else ended a process, by the exception that it printed."""
    classes = catalog.classes
    return _lines(timeline.where(lambda a: a.cause is not None and classes[a.cause].outside))


def _lines(events: Iterable[Event]) -> Ends:
    found: dict[tuple[int | None, str], list[int]] = defaultdict(list)
    for event in events:
        found[event.rank, event.source].append(event.line)
    return found
