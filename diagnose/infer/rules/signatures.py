"""Candidates that the log states: lines of role cause, exit codes and signals."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pandas as pd

from diagnose.catalog.schema import Catalog, Signature
from diagnose.diagnosis import CulpritKind
from diagnose.infer.events.recovery import afterlife, doubtful, survived
from diagnose.infer.events.watchdogs import fold_ranks
from diagnose.infer.rules.base import Candidate

_SCORE = {"decisive": 6.0, "strong": 4.0, "weak": 2.0}
# Causes that are often seen or logged only after the waits they led to.
_RETROSPECTIVE = (
    "hw.", "crash.host_oom", "crash.gpu_oom", "crash.cuda_error", "crash.native", "net.shm",
    "checkpoint.", "desync.",
)  # fmt: skip
# What counts less: an error whose rank went on, and one after which others worked on for long.
_RECOVERED, _DOUBTED = 3.0, 2.0
# An exception of one rank (or of one that is not named) before any wait: what it died of.
_OWN_EXCEPTION = 3.6
# Clocks of two hosts are not trusted to agree better than this.
_CLOCK_SLACK = pd.Timedelta(seconds=2)
_ENDINGS = ("scheduler.", "user.", "crash.killed")


def stated(frame: pd.DataFrame, catalog: Catalog, world: int | None) -> list[Candidate]:
    """One candidate per cause signature that matched."""
    first_wait = _first(frame, ("timeout",))
    first_effect = _first(frame, ("timeout", "teardown"))
    signatures = {signature.id: signature for signature in catalog.signatures}
    rows = frame[(frame["role"] == "cause").fillna(False)]
    gpus = gpu_ranks(frame)
    life = afterlife(frame)
    found = []
    for id_, group in rows.groupby("signature", observed=True, sort=False):
        signature = signatures[str(id_)]
        first = int(group.index[0])
        # Launchers stop processes before they print why; only a wait comes before an ending.
        limit = first_wait if signature.cause.startswith(_ENDINGS) else first_effect
        late = limit is not None and _after(frame, first, limit)
        score = _SCORE[signature.strength] - (0.5 if signature.generic else 0.0)
        score -= _lateness(signature.cause, late)
        score -= _RECOVERED if survived(life, group) else 0.0
        score -= _DOUBTED if doubtful(life, group) else 0.0
        ranks, hosts = culprits_of(signature, group, world, gpus)
        if signature.tells == "exception" and not late and len(ranks) <= 1:
            score = max(score, _OWN_EXCEPTION)
        title = catalog.classes[signature.cause].title if signature.cause else signature.title
        found.append(
            Candidate(
                cause=signature.cause,
                score=score,
                title=title,
                summary=_summary(signature, group.iloc[0], ranks, hosts),
                rows=[int(i) for i in group.index[:8]],
                signature=signature.id,
                ranks=ranks,
                hosts=hosts,
                kind=_kind(signature.cause) if ranks or hosts else None,
                why="it printed the error" if ranks or hosts else "",
                sure=signature.strength == "decisive",
                late=late,
                explains=list(signature.explains),
                remedies=list(signature.remedies),
                restart=signature.restart,
            )
        )
    return found


def _first(frame: pd.DataFrame, tells: tuple[str, ...]) -> int | None:
    rows = frame.index[frame["tells"].isin(tells)]
    return int(rows[0]) if len(rows) else None


def _after(frame: pd.DataFrame, row: int, other: int) -> bool:
    """Whether `row` surely came after `other`: later in the same source, or by both clocks."""
    if row <= other:
        return False
    a, b = frame.loc[row], frame.loc[other]
    if a["source"] == b["source"]:
        return True
    gap = a["time"] - b["time"]
    return bool(pd.notna(gap) and gap > _CLOCK_SLACK)


def _lateness(cause: str, late: bool) -> float:
    if not late or cause.startswith(_RETROSPECTIVE):
        return 0.0
    return 3.5 if cause.startswith(_ENDINGS) or cause == "crash.exception" else 1.0


def after_line(frame: pd.DataFrame, row: int) -> pd.DataFrame:
    """The rows after `row`, without others of its own line (a bar glued to an error)."""
    place = frame.loc[row]
    later = frame[frame.index > row]
    return later[(later["source"] != place["source"]) | (later["line"] != place["line"])]


def gpu_ranks(frame: pd.DataFrame) -> dict[tuple[str | None, int], int]:
    """(host, PCI bus number) → rank, from lines that map both (NCCL's init lines)."""
    rows = frame[(frame["tells"] == "rank_map").fillna(False) & frame["rank"].notna()]
    found = {}
    for row in rows.itertuples():
        bus = pci_bus(row.fields.get("busid"))
        if bus is not None:
            host = None if pd.isna(row.host) else str(row.host)
            found[host, bus] = int(row.rank)
    return found


def pci_bus(text: str | None) -> int | None:
    """The bus number of a PCI address, as the kernel (0000:9b:00.0) or NCCL (9b000) prints it."""
    if not text:
        return None
    parts = text.split(":")
    try:
        return int(parts[-2], 16) if len(parts) > 1 else int(text, 16) >> 12
    except ValueError:
        return None


def culprits_of(
    signature: Signature,
    group: pd.DataFrame,
    world: int | None,
    gpus: dict[tuple[str | None, int], int],
) -> tuple[list[int], list[str]]:
    """Ranks and hosts a signature's matches name, by its `culprit` rule.

    A PCI address in a match names the rank that NCCL said uses this GPU.
    """
    ranks: set[int] = set()
    hosts: set[str] = set()
    if signature.culprit == "self":
        ranks = {int(rank) for rank in group["rank"].dropna()}
        hosts = {str(host) for host in group["host"].dropna()}
    if signature.culprit in ("self", "captured"):
        for fields in group["fields"]:
            for key in ("rank", "other_rank"):
                if key in fields and (key == "rank" or signature.culprit == "captured"):
                    ranks.add(int(fields[key]))
            if signature.culprit == "captured" and "host" in fields:
                hosts.add(fields["host"])
    if not ranks and signature.culprit != "none":
        pairs = zip(group["host"], group["fields"], strict=True)
        for host, bus in {(host, pci_bus(fields.get("busid"))) for host, fields in pairs}:
            here = [r for (h, b), r in gpus.items() if b == bus and (h == host or pd.isna(host))]
            ranks.update(here if len(here) == 1 else [])
    if not ranks and signature.culprit == "self" and len(hosts) <= 1 and (world or 8) <= 8:
        # On one node the device a rank uses has the rank's number.
        ranks = {
            int(fields["dev"]) for fields in group["fields"] if fields.get("dev", "").isdigit()
        }
    if world and len(ranks) > max(world // 2, 1) and signature.culprit == "self":
        return [], []  # what most ranks say accuses nobody
    return sorted(ranks), sorted(hosts)


def _kind(cause: str) -> CulpritKind | None:
    if cause.startswith(("crash.", "hw.", "net.", "data.loader", "env.", "checkpoint.")):
        return "crashed"
    if cause.startswith("slow.") or cause == "data.preparation":
        return "slow"
    return "stuck_host" if cause == "stall.host" else None


def _who(ranks: list[int], hosts: list[str]) -> str:
    return fold_ranks(ranks, prefix=True) if ranks else ", ".join(hosts[:4])


def _summary(signature: Signature, row: pd.Series, ranks: list[int], hosts: list[str]) -> str:
    who = _who(ranks, hosts)
    where = f" ({who})" if who else ""
    detail = row["fields"].get("message") or row["fields"].get("reason") or ""
    detail = " ".join(detail.split())[:160]
    return f"{signature.title}{where}{': ' + detail if detail else ''}."


# --------------------------------------------------------------------------- exit codes


_BY_SIGNAL: dict[int, tuple[str, float, str]] = {
    signal.SIGKILL: ("crash.killed", 4.0, "was killed from outside (SIGKILL)"),
    signal.SIGSEGV: ("crash.native", 4.0, "crashed in native code (SIGSEGV)"),
    signal.SIGBUS: ("net.shm", 3.0, "died of a bus error (SIGBUS), most often a full /dev/shm"),
    signal.SIGFPE: ("crash.native", 4.0, "died of an arithmetic error in native code (SIGFPE)"),
    signal.SIGILL: ("crash.native", 4.0, "ran an illegal instruction (SIGILL)"),
    signal.SIGABRT: ("crash.native", 1.5, "aborted (SIGABRT)"),
    signal.SIGINT: ("user.interrupt", 3.0, "was interrupted (SIGINT)"),
    signal.SIGHUP: ("user.interrupt", 3.0, "lost its terminal (SIGHUP)"),
    signal.SIGTERM: ("scheduler.preempted", 1.0, "was told to stop (SIGTERM)"),
    signal.SIGXCPU: ("scheduler.limit", 4.0, "used up its CPU time (SIGXCPU)"),
}


def exits(frame: pd.DataFrame, catalog: Catalog) -> Iterator[Candidate]:
    """Candidates from how processes ended: what killed the first that was not a victim.

    SIGTERM is what launchers send to victims and SIGABRT what the watchdog ends with: they count
    only where no process ended otherwise and nothing in the log sent them.
    """
    victims = (frame["tells"].isin(["timeout", "teardown"])).any()
    rows = frame[(frame["kind"] == "exit") & (frame["role"] != "aftermath").fillna(True)]
    codes = rows["fields"].map(exit_code)
    rows = rows[codes.notna() & (codes != 0)]
    if rows.empty:
        return
    codes = codes.loc[rows.index].astype(int)
    meaningful = ~codes.isin([-signal.SIGTERM, -signal.SIGABRT])
    if meaningful.any() or victims:
        rows, codes = rows[meaningful], codes[meaningful]
    by_code: dict[int, list[Any]] = {}
    for code, row in zip(codes, rows[["rank", "host"]].itertuples(), strict=True):
        by_code.setdefault(int(code), []).append(row)
    for number, group in by_code.items():
        ranks = sorted({int(row.rank) for row in group if pd.notna(row.rank)})
        hosts = sorted({str(row.host) for row in group if pd.notna(row.host)})
        cause, score, did = _BY_SIGNAL.get(
            -number, ("crash.exception", 1.0, f"exited with status {number}")
        )
        if number > 0:
            cause, score = "crash.exception", 1.0
        who = _who(ranks, hosts) or "a process"
        yield Candidate(
            cause=cause,
            score=score,
            title=catalog.classes[cause].title,
            summary=f"{who[:1].upper()}{who[1:]} {did}.",
            rows=[int(row.Index) for row in group[:4]],
            signature=None,
            ranks=ranks,
            hosts=hosts,
            kind="crashed" if ranks or hosts else None,
            why=f"{did}; other processes ended only afterwards" if ranks else "",
            inferred=True,
        )


def exit_code(fields: dict[str, str]) -> int | None:
    """The exit code of captures; negative is a signal (also 128+N as shells report it)."""
    named = fields.get("signal")
    if named:
        if named.isdigit():
            return -int(named) if named.isascii() and len(named) < 4 else None
        member = getattr(signal, f"SIG{named.upper().removeprefix('SIG')}", None)
        if member is None:
            member = _SIGNAL_WORDS.get(named.lower())
        if member is not None:
            return -int(member)
    try:
        code = int(fields["exitcode"])
    except (KeyError, ValueError):
        return None
    if not -_MAX_CODE < code < _MAX_CODE:
        return None
    return 128 - code if 128 < code < 128 + 65 else code


_MAX_CODE = 2**32  # Windows prints NTSTATUS values
_SIGNAL_WORDS = {
    "killed": signal.SIGKILL, "segmentation fault": signal.SIGSEGV, "aborted": signal.SIGABRT,
    "bus error": signal.SIGBUS, "terminated": signal.SIGTERM, "interrupt": signal.SIGINT,
    "hangup": signal.SIGHUP, "illegal instruction": signal.SIGILL,
    "floating point exception": signal.SIGFPE, "out of memory": signal.SIGKILL,
}  # fmt: skip
