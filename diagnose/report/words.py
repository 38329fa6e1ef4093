"""The sentences that all reports share, as plain text. Input is a diagnosis made `safe`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, takewhile
from operator import attrgetter
from typing import TYPE_CHECKING, Literal

from diagnose.catalog.schema import CauseClass, Remedy, Run
from diagnose.diagnosis import (
    WELL,
    Answer,
    ChainLink,
    CodeFrame,
    Collective,
    Diagnosis,
    Earlier,
    Evidence,
    JobFacts,
    Onset,
    Progress,
    PythonException,
    RemedyStep,
    SourceLine,
)
from diagnose.text.ranks import counted, plural, ranks_phrase
from diagnose.text.times import duration

if TYPE_CHECKING:
    from diagnose.checkpoint.model import Checkpoint

MAX_PLACES = 4  # of alike lines
MAX_KINDS = 3  # of evidence with the same reason
MAX_NAMES = 8  # of hosts in one list
MAX_FILES = 3  # of a checkpoint that are listed for the same reason
MAX_WHO = 20  # characters of a list of ranks beside an event

KINDS = {
    "missing": "never reached the collective",
    "mismatched": "issued a different collective",
    "crashed": "failed",
    "slow": "slow, still making progress",
    "stuck_host": "blocked on the host (CPU) side",
    "stuck_device": "stuck on the GPU",
}
NOBODY = "The evidence does not identify a rank or host"
APART = "left the other ranks, or never joined them"  # missing, where no collective is known
RESTART = {
    "retry": "Restart the job",
    "retry_elsewhere": "Restart on different hosts",
    "fix_first": "Fix the cause before restarting",
    "none": "",
}
# Would a longer timeout help? The answer, and why. A job that failed may have met no timeout.
LONGER_TIMEOUT: dict[Answer, tuple[str, str]] = {
    "yes": ("Yes.", "It has to exceed the time the slow rank needs."),
    "no": ("No.", "A longer timeout would only delay the same failure."),
    "unknown": ("Unknown.", "It helps only if the blocking rank was still making progress."),
}
NO_TIMEOUT = "The cause is not a timeout."
PHASES = {"init": "initialisation", "model_load": "model loading", "checkpoint": "checkpointing"}
REMEDY_GROUPS = {"now": "What to do now", "fix": "To fix it", "prevent": "To prevent it next time"}
NEEDS = {"user": "", "admin": "Needs an administrator."}
RISKS = {
    "read_only": "",
    "changes_state": "Changes state.",
    "destructive": "Destructive: ends or deletes what is there.",
}
RUN_KINDS = {"shell": "shell", "python": "Python", "setting": "setting", "note": ""}

_DIGITS = re.compile(r"\d+")
_FRACTION = re.compile(r"(\.\d{1,3})\d*")


_SILENT_S, _MISSED = 30.0, 6  # seconds, and heartbeats, without a step that are worth telling


def size(count: int) -> str:
    """`512 B`, `18.2 KiB`, `1.0 GiB`."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"


def names(items: Sequence[str], limit: int = MAX_NAMES) -> str:
    """`a, b, c`, or `a, b and 5 more` when there are more than `limit`."""
    if len(items) <= limit:
        return ", ".join(items)
    return f"{', '.join(items[: limit - 1])} and {len(items) - limit + 1} more"


def sentence(text: str) -> str:
    """`text` with a full stop where it lacks one. Its case stays: it may start with a command."""
    return text if not text or text[-1] in ".!?…:" else f"{text}."


def capital(text: str) -> str:
    """`text` with a capital in front."""
    return text[:1].upper() + text[1:]


def started_sentence(text: str) -> str:
    """`text` as a sentence of its own, with a capital in front."""
    return sentence(capital(text))


def joined(*parts: str) -> str:
    """The non-empty parts as one text: sentences, and after a semicolon what starts small."""
    text = ""
    for part in filter(None, parts):
        if text:
            text = f"{text}; " if part[0].islower() else f"{sentence(text)} "
        text += part
    return sentence(text)


def when(time: str) -> str:
    """An ISO 8601 time for people: a space instead of the T, milliseconds at most."""
    return _FRACTION.sub(r"\1", time.replace("T", " ", 1), count=1)


def confidence(diagnosis: Diagnosis) -> str:
    """`high confidence`; empty for verdicts where it would say nothing (unknown)."""
    return "" if diagnosis.verdict == "unknown" else f"{diagnosis.root_cause.confidence} confidence"


def culprit_kind(diagnosis: Diagnosis) -> str:
    """What the culprits did, as far as it is known; empty where nothing is."""
    kind = diagnosis.culprits.kind
    if kind == "missing" and diagnosis.collective is None:
        return APART
    return KINDS[kind] if kind else ""


def culprits(diagnosis: Diagnosis) -> str:
    """Who is to blame: `Rank 3 on node7: died`; empty when nobody is named."""
    found = diagnosis.culprits
    ranks = ranks_phrase(found.ranks).capitalize() if found.ranks else ""
    hosts = names([f"{one.host} device {one.number}" for one in found.devices] or found.hosts)
    who = f"{ranks} on {hosts}" if ranks and hosts else ranks or hosts
    kind = culprit_kind(diagnosis)
    return f"{who}: {kind}" if who and kind else who


def titled(diagnosis: Diagnosis) -> str:
    """`The title (high confidence)`."""
    sure = confidence(diagnosis)
    return diagnosis.root_cause.title + (f" ({sure})" if sure else "")


def is_bad(diagnosis: Diagnosis) -> bool:
    """Whether there is a cause to say: of a job that hung or failed, or that works on with it."""
    found = diagnosis.verdict in WELL and diagnosis.root_cause.cause != "none"
    return found or has_ended_badly(diagnosis)


def has_ended_badly(diagnosis: Diagnosis) -> bool:
    """Whether the job hung or failed, and not only works on with a trouble."""
    return diagnosis.verdict in ("hung", "failed")


def facts(diagnosis: Diagnosis) -> dict[str, str]:
    """What a report says of the job under its verdict, by labels in lower case; empty: unknown."""
    bad, failed = is_bad(diagnosis), has_ended_badly(diagnosis)
    who = culprits(diagnosis) or (NOBODY if bad else "")
    found = diagnosis.collective
    return {
        "cause": diagnosis.root_cause.cause if bad else "",
        "culprits": joined(who, diagnosis.culprits.why) if who else "",
        "in common": in_common(diagnosis),
        "onset": onset(diagnosis.onset) if failed or diagnosis.onset.time else "",
        "phase" if bad else "last phase": phase(diagnosis.phase) if diagnosis.phase else "",
        "progress": progress(diagnosis.progress),
        "collective": collective(found) if found else "",
        "longer timeout": longer_timeout(diagnosis) if failed else "",
        "restart": restart(diagnosis) if bad else "",
        "seen before": " ".join(map(earlier, diagnosis.earlier)),
        "site record": site_record(diagnosis),
        "job": job(diagnosis.job),
    }


def in_common(diagnosis: Diagnosis) -> str:
    """`all 3 culprit hosts are in rack r7, which has 4 of 64 (by chance 0.02 %)`, or ""."""
    found = diagnosis.shared
    if found is None:
        return ""
    kind = "culprit hosts" if diagnosis.culprits.hosts else "hosts of the missing ranks"
    who = f"all {len(found.suspects)} {kind}"
    chance = f"{100 * found.p:.2f} %" if found.p >= 0.0001 else "below 0.01 %"
    if found.level == "rail":
        return f"adapter {found.unit} on {who} (by chance {chance})"
    place = "NVLink domain" if found.level == "nvlink" else found.level
    size = f"which has {found.hosts} of the job's {counted(found.of_hosts, 'host')}"
    return f"{who} are in {place} {found.unit}, {size} (by chance {chance})"


def earlier(found: Earlier) -> str:
    """`run-17 (2026-10-02), the same failure: net.fabric, gpu-7. Fix: replaced the cable`."""
    alike = {
        "job": "this job",
        "fingerprint": "the same failure",
        "similar": f"{found.similarity:.0%} alike",
    }[found.likeness]
    ranks, hosts = ranks_phrase(found.ranks) if found.ranks else "", names(found.hosts, 4)
    who = " on ".join(filter(None, (ranks, hosts)))
    what = ", ".join(filter(None, (found.cause or "not explained", who)))
    fix = f" Fix: {sentence(found.fix)}" if found.fix else ""
    others = f" and {counted(found.incidents - 1, 'other')}" if found.incidents > 1 else ""
    return f"{found.job} ({found.confirmed[:10]}){others}, {alike}: {sentence(what)}{fix}"


def site_record(diagnosis: Diagnosis) -> str:
    """`9 of 12 confirmed verdicts of net.fabric … were right: medium instead of high`."""
    found = diagnosis.site_record
    if found is None:
        return ""
    now = diagnosis.root_cause.confidence
    of_class = f" of {diagnosis.root_cause.cause}" if found.of_class else ""
    verdicts = f"confirmed {plural(found.confirmed, 'verdict')}{of_class}"
    were = "was" if found.confirmed == 1 else "were"
    effect = f"{now} instead of {found.stated}" if now != found.stated else f"it stays {now}"
    return (
        f"{found.correct} of {found.confirmed} {verdicts} at {found.stated} confidence {were} "
        f"right: {effect}"
    )


def onset(found: Onset) -> str:
    """`2025-03-08 08:18:22 (30 min before the first timeout)`, or what there is of it."""
    if found.time is None:
        return started_sentence(found.why)
    return when(found.time) + (f" ({found.why})" if found.why else "")


def phase(name: str) -> str:
    """A phase as a word of prose."""
    return PHASES.get(name, name)


def progress(found: Progress | None) -> str:
    """`step 12 at … · 9 s a step, 1.4 s earlier · silent for the last 30 min · behind: rank 3`."""
    if found is None or found.last_step is None:
        return ""
    at = f" at {when(found.last_step_time)}" if found.last_step_time else ""
    parts = [f"step {found.last_step:,}{at}"]
    beat, line = found.seconds_a_step, found.seconds_a_line or 0.0
    silent = found.silent_s or 0.0
    if beat:
        parts.append(_pace(beat, found.earlier_seconds_a_step))
    if line >= _MISSED * (beat or line or 1.0):
        parts.append(f"a line every {duration(line)}")
    if silent >= max(_SILENT_S, _MISSED * max(beat or 0.0, line)):
        parts.append(f"silent for the last {duration(silent)}")
    if found.lagging:
        parts.append(f"behind: {ranks_phrase(found.lagging)}")
    return " · ".join(parts)


def _pace(seconds: float, earlier: float | None) -> str:
    """What a step takes: `1.4 s a step`, or `2 min 3 s a step, 9 s earlier`."""
    now, *before = (
        f"{one:.3g} s" if one < 60 else duration(one) for one in (seconds, earlier) if one
    )
    return ", ".join([f"{now} a step", *(f"{one} earlier" for one in before)])


def collective(found: Collective) -> str:
    """`ALLREDUCE, sequence number 2, group default: ranks 1-7 joined, rank 0 did not`."""
    what = [found.op or "a collective"]
    if found.seq is not None:
        what.append(f"sequence number {found.seq}")
    if found.group:
        what.append(found.group if found.group.startswith("group ") else f"group {found.group}")
    if found.site:
        what.append(f"called at {found.site}")
    sides = []
    if found.joined:
        sides.append(f"{ranks_phrase(found.joined)} joined")
    if found.missing:
        absent = ranks_phrase(found.missing)
        sides.append(f"{absent} did not" if found.joined else f"{absent} did not join")
    return ", ".join(what) + (": " + ", ".join(sides) if sides else "")


def longer_timeout_why(diagnosis: Diagnosis) -> tuple[str, str]:
    """The answer to "would a longer timeout help?", and why."""
    answer, why = LONGER_TIMEOUT[diagnosis.longer_timeout_helps]
    if diagnosis.longer_timeout_helps == "no" and diagnosis.verdict == "failed":
        why = NO_TIMEOUT
    return answer, why


def longer_timeout(diagnosis: Diagnosis) -> str:
    """The same as sentences."""
    return " ".join(longer_timeout_why(diagnosis))


def longer_timeout_of(cause: CauseClass) -> str:
    """The answer for a whole class, of which `moving` says that it depends on the job."""
    if cause.longer_timeout == "yes" and cause.moving:
        return f"Yes, if the blocking rank is still making progress. {LONGER_TIMEOUT['yes'][1]}"
    if cause.longer_timeout == "no" and cause.hang == "fails":
        return f"No. {NO_TIMEOUT}"
    return " ".join(LONGER_TIMEOUT[cause.longer_timeout])


def restart_advice(diagnosis: Diagnosis) -> str:
    """`Restart on different hosts, excluding gpu-7`; empty when there is none."""
    without = diagnosis.restart.exclude_hosts
    return RESTART[diagnosis.restart.advice] + (f", excluding {names(without)}" if without else "")


def restart(diagnosis: Diagnosis) -> str:
    """The same as sentences, with the reason."""
    return joined(restart_advice(diagnosis), diagnosis.restart.why)


def job(facts: JobFacts) -> str:
    """What is known of the job: `8 ranks on 2 hosts, 2 attempts; axolotl, torch 2.3`."""
    ranks = f"{facts.world_size} {plural(facts.world_size, 'rank')}" if facts.world_size else ""
    hosts = names(facts.hosts, 4)
    absent: set[int] = set()
    if facts.ranks_seen and facts.world_size:  # with no rank told apart, absence means nothing
        absent = set(range(min(facts.world_size, 1 << 20))) - set(facts.ranks_seen)
    if ranks and hosts and not absent:
        parts = [f"{ranks} on {hosts}"]
    else:
        parts = [ranks] * bool(ranks)
        parts += [f"{plural(len(facts.hosts), 'host')} {hosts}"] * bool(hosts)
    if facts.attempts > 1:
        parts.append(f"{facts.attempts} attempts")
    software = [
        *(name for name in facts.frameworks if name not in facts.versions),
        *(f"{name} {version}" for name, version in facts.versions.items()),
    ]
    if software:
        parts.append(names(software))
    if absent:
        parts.append(f"no output from {ranks_phrase(absent)}")
    return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class Step:
    """A line of "what happened, in order": when, who, what, where; each may be empty but what."""

    time: str
    who: str
    event: str
    place: str

    @property
    def start(self) -> str:
        """When and who, as one text."""
        return ", ".join(part for part in (self.time, self.who) if part)


def steps(links: Sequence[ChainLink], limit: int) -> list[Step]:
    """The first `limit` links of the chain, in time order.

    The date is part of the time only if there are several. Links whose source tells no time at
    all cannot be put in order: they come first, and say so.
    """
    if len(links) < 2:  # it would only repeat the evidence
        return []
    timed = {link.source for link in links if link.time}
    loose = [link for link in links if timed and not link.time and link.source not in timed]
    keyed, last = [], ""
    for link in (link for link in links if link not in loose):
        last = link.time or last  # one without a time stays behind the one it follows
        keyed.append((last, link))
    ordered = [link for _, link in sorted(keyed, key=lambda pair: pair[0])]
    shown = [*loose, *ordered][:limit]
    dates = len({link.time[:10] for link in shown if link.time}) > 1
    return [_step(link, with_date=dates, loose=link in loose) for link in shown]


def _step(link: ChainLink, *, with_date: bool, loose: bool) -> Step:
    time = "no time" if loose else when(link.time or "")
    who, event = "" if link.rank is None else f"rank {link.rank}", link.event
    if link.ranks:
        several = ranks_phrase(link.ranks)
        who, event = (several, event) if len(several) <= MAX_WHO else (who, f"{event} ({several})")
    return Step(
        time if with_date or loose else time.rpartition(" ")[2],
        who,
        sentence(event),
        place(link.source, link.line),
    )


def alternatives_heading(diagnosis: Diagnosis) -> str:
    """What the causes are that did not win."""
    return "Possible causes" if diagnosis.verdict == "unknown" else "Alternatives considered"


def place(source: str | None, line: int | None) -> str:
    """`file:line`, or what there is of it."""
    if source is None:
        return ""
    return f"{source}:{line}" if line else source


def alike(evidence: Iterable[Evidence]) -> list[list[Evidence]]:
    """Evidence of the same kind together: the same reason, and lines that differ in digits only.

    Kinds with the same reason stand next to each other.
    """
    groups: dict[str, dict[str, list[Evidence]]] = {}
    for item in evidence:
        kinds = groups.setdefault(item.why, {})
        kinds.setdefault(_DIGITS.sub("", item.text), []).append(item)
    return [items for kinds in groups.values() for items in kinds.values()]


def quotes(evidence: Iterable[Evidence], limit: int) -> list[tuple[str, list[Evidence]]]:
    """What to quote: up to `limit` kinds with their reason, of one reason MAX_KINDS at most.

    The reason is a sentence, and empty where it is that of the kind before.
    """
    found: list[tuple[str, list[Evidence]]] = []
    counts: Counter[str] = Counter()
    for items in alike(evidence):
        why = items[0].why
        counts[why] += 1
        if counts[why] <= MAX_KINDS:
            found.append((sentence(why) if counts[why] == 1 else "", items))
    return found[:limit]


def places(items: Sequence[Evidence | SourceLine]) -> str:
    """Where alike evidence is, each place once: `a.log:4`, `a.log:4, :9, b.log:1 and 3 more`."""
    shown = []
    items = list({(item.source, item.line): item for item in items}.values())
    for before, item in zip([None, *items], items, strict=False):
        same = before is not None and before.source == item.source and item.line > 0
        shown.append(f":{item.line}" if same else place(item.source, item.line))
    return names(shown, MAX_PLACES)


def caution(step: RemedyStep | Remedy) -> str:
    """What to know before running a step: who can, and what it does; empty for a mere look."""
    return " ".join(part for part in (NEEDS[step.needs], RISKS[step.risk]) if part)


def runs_of(step: RemedyStep | Remedy) -> list[tuple[str, Run]]:
    """What to run, each with what stands above it: "Python", "Setting for verl, in a.yaml".

    A command for the shell needs no such words, unless something else stands beside it.
    """
    bare = all(run.kind in ("shell", "note") for run in step.run)
    return [(_run_label(run, bare), run) for run in step.run]


def _run_label(run: Run, bare: bool) -> str:
    parts = ["" if bare else RUN_KINDS[run.kind], f"for {run.framework}" if run.framework else ""]
    label = " ".join(filter(None, parts))
    return capital(", ".join(filter(None, (label, f"in {run.file}" if run.file else ""))))


def note_of(run: Run, label: str) -> str:
    """A note as sentences, after its label where it has one."""
    text = sentence("; ".join(run.lines))
    return f"{label}: {text}" if label else text


def remedy_groups(
    steps: Sequence[RemedyStep],
) -> Iterator[tuple[str, list[tuple[int, RemedyStep]]]]:
    """Each heading with its steps, numbered through over all groups, in the order of urgency."""
    number = 0
    for group, heading in REMEDY_GROUPS.items():
        mine = [step for step in steps if step.when == group]
        if mine:
            yield heading, list(enumerate(mine, start=number + 1))
            number += len(mine)


# --- the traceback that a verdict rests on: own frames in full, others folded ---------------------

MAX_OWN = 12  # frames of the program in a row; of recursion the innermost ones


@dataclass(frozen=True, slots=True)
class TracebackLine:
    """One line of a traceback as shown; `mark` is where in the user's program it was raised."""

    text: str
    kind: Literal["own", "mark", "code", "folded", "raised"]


@dataclass(frozen=True, slots=True)
class FrameRun:
    """Frames that follow each other, all of the user's program or all of installed packages."""

    own: bool
    frames: list[CodeFrame]


def traceback_heading(found: PythonException) -> str:
    """`Traceback of rank 6`."""
    return "Traceback" if found.rank is None else f"Traceback of rank {found.rank}"


def traceback_place(found: PythonException) -> str:
    """`train.log:4-13`."""
    first = "" if found.first_line == found.line else f"{found.first_line}-"
    return f"{found.source}:{first}{found.line}"


def exception_line(found: PythonException) -> str:
    """The exception as Python prints it."""
    return f"{found.type}: {found.message}" if found.message else found.type


def frame_runs(found: PythonException) -> list[FrameRun]:
    """The frames, outermost first; the innermost stands alone, for there it was raised."""
    frames = found.frames
    if frames and not frames[-1].own:
        return [*_frame_runs(frames[:-1]), FrameRun(own=False, frames=frames[-1:])]
    return _frame_runs(frames)


def traceback_lines(found: PythonException) -> Iterator[TracebackLine]:
    """The traceback with the frames of packages folded, in words."""
    parts = frame_runs(found)
    for part in parts:
        last = part is parts[-1]
        shown = part.frames[-MAX_OWN:] if part.own or last else []
        if hidden := len(part.frames) - len(shown):
            noun = plural(hidden, "frame")
            whose = f"{noun} of the program" if part.own else f"library {noun}"
            yield TracebackLine(f"… {hidden} {whose}", "folded")
        for frame in shown:
            mark = frame == found.where
            text = f"{frame.file}:{frame.line} in {frame.function}"
            yield TracebackLine(text, "mark" if mark else "own" if frame.own else "folded")
            if frame.code:
                yield TracebackLine(f"  {frame.code}", "code")
    yield TracebackLine(exception_line(found) or "… the log breaks off here", "raised")


def _frame_runs(frames: list[CodeFrame]) -> list[FrameRun]:
    return [FrameRun(own, [*group]) for own, group in groupby(frames, attrgetter("own"))]


# --- checkpoints ----------------------------------------------------------------------------------


def common_folder(found: Sequence[Checkpoint]) -> str:
    """The folder that all checkpoints have in common; what is shown is relative to it."""
    parents = [one.path.rstrip("/").split("/")[:-1] for one in found]
    parts = takewhile(lambda same: len(set(same)) == 1, zip(*parents, strict=False))
    return "/".join(same[0] for same in parts)


def relative(path: str, base: str) -> str:
    """What a checkpoint is called in a report: its path below the common folder."""
    return path.removeprefix(base).strip("/") or path


def folded_reasons(reasons: Sequence[str]) -> list[str]:
    """Reasons, those that say the same of several files as one: `a.pt and 6 more: missing`."""
    files: dict[str, list[str]] = {}
    for reason in reasons:
        file, colon, why = reason.partition(": ")
        whose = colon and " " not in file
        files.setdefault(why if whose else reason, []).append(file if whose else "")
    return [
        f"{names(named, MAX_FILES)}: {why}" if (named := [f for f in several if f]) else why
        for why, several in files.items()
    ]
