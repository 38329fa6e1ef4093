"""A diagnosis as Markdown for an issue, a ticket or a chat: the verdict, the rest folded away.

Log lines stand in fences no line of theirs can close; other text is escaped, and can neither
mention people nor link issues or addresses.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from diagnose import __version__
from diagnose.catalog.schema import Run
from diagnose.diagnosis import Diagnosis, PythonException, Reason, RemedyStep
from diagnose.job.model import Job
from diagnose.redact.redactor import Redactor
from diagnose.report import Wish, words
from diagnose.report.safe import cut, learn_around, safe
from diagnose.text.ranks import plural

MAX_EVIDENCE = 12
MAX_CHAIN = 20
MAX_QUOTE = 500  # characters of one log line

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|~&])")
_BLOCK_START = re.compile(r"^(\d*)([-+#=.)])")
# What forges link by themselves: @team, #12, !12, GH-12, addresses, www.
_LINKED = re.compile(
    r"([@#])(?=\w)|(!)(?=\d)|\b(GH-)(?=\d)|(:)(?=//)|\b(www)(?=\.)|\b(mailto:|xmpp:)(?=\S)",
    re.IGNORECASE,
)
_ZERO_WIDTH_SPACE = "\u200b"


def report(job: Job, diagnosis: Diagnosis, wish: Wish) -> str:
    """The whole text, without people if so wished."""
    redactor = learn_around(job, diagnosis, Redactor()) if wish.redact else None
    return render(diagnosis, redact=wish.redact, redactor=redactor, why=wish.why)


def render(
    diagnosis: Diagnosis,
    *,
    redact: bool = True,
    redactor: Redactor | None = None,
    why: bool = False,
) -> str:
    """The whole text, ending with a newline. Notes are left to the caller.

    It is made to be passed on, so with `redact` people are hidden as well as secrets; `redactor`
    is one that knows secrets of the job already. With `why` the reasons are folded in.
    """
    diagnosis = safe(diagnosis, (redactor or Redactor()) if redact else None, why=why)
    return "\n\n".join(parts(diagnosis)) + "\n"


def parts(diagnosis: Diagnosis) -> list[str]:
    """The parts of the text, the most important first, of a diagnosis made `safe`."""
    blocks = [headline(diagnosis), *_verdict(diagnosis)]
    for index, (heading, steps) in enumerate(words.remedy_groups(diagnosis.remedies)):
        items = "\n".join(_step(number, step) for number, step in steps)
        blocks.append(folded(heading, items) if index else f"**{heading}**\n\n{items}")
    blocks += _details(diagnosis)
    return [block for block in blocks if block]


def escape(text: str) -> str:
    """`text` (one line, inside a block) so that it shows as it is."""
    text = _SPECIAL.sub(r"\\\1", text)
    return _LINKED.sub(rf"\g<0>{_ZERO_WIDTH_SPACE}", text)


def code(text: str) -> str:
    """`text` (one line) as inline code, whatever backticks it holds."""
    ticks = _ticks(text)
    pad = " " if text[:1] == "`" or text[-1:] == "`" else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"


def fenced(text: str, indent: str = "") -> str:
    """`text` as a code block whose fence is longer than any run of backticks inside."""
    fence = _ticks(text).ljust(3, "`")
    return "\n".join(f"{indent}{line}" for line in (fence, *text.splitlines(), fence))


def _ticks(text: str) -> str:
    """One backtick more than follow each other in a text."""
    return "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)


def headline(diagnosis: Diagnosis) -> str:
    """The verdict and its title as a heading."""
    return f"### {diagnosis.verdict.capitalize()}: {escape(words.titled(diagnosis))}"


def _verdict(diagnosis: Diagnosis) -> list[str]:
    table = "\n".join(
        f"- **{label.capitalize()}:** {code(text) if label == 'cause' else escape(text)}"
        for label, text in words.facts(diagnosis).items()
        if text
    )
    summary = escape(words.sentence(diagnosis.root_cause.summary))
    return [_BLOCK_START.sub(r"\1\\\2", summary), table]


def _step(number: int, step: RemedyStep) -> str:
    first = f"{number}. "
    text = first + escape(words.sentence(step.do))
    if step.why:
        text += f" *{escape(words.sentence(step.why))}*"
    if caution := words.caution(step):
        text += f" **{caution}**"
    runs = (_run(label, run, " " * len(first)) for label, run in words.runs_of(step))
    return "\n".join([text, *runs])


def _run(label: str, run: Run, indent: str) -> str:
    if run.kind == "note":
        return f"\n{indent}{escape(words.note_of(run, label))}"
    code = fenced("\n".join(run.lines), indent)
    return f"\n{indent}{escape(label)}:\n{code}" if label else code


def _details(diagnosis: Diagnosis) -> list[str]:
    return [
        *_traceback(diagnosis.exception),
        folded("Evidence", _evidence(diagnosis)),
        folded("Sequence of events", _chain(diagnosis)),
        folded(
            words.alternatives_heading(diagnosis),
            "\n".join(
                f"- {code(other.cause)} ({other.confidence} confidence): "
                f"{escape(words.sentence(other.why_not))}"
                for other in diagnosis.alternatives
            ),
        ),
        folded(
            "Collect this next time",
            "\n".join(
                f"- {escape(item.what)}"
                + (f": {escape(item.how)}" if item.how not in ("", item.what) else "")
                for item in diagnosis.missing_evidence
            ),
        ),
        _why(diagnosis.reasons),
    ]


def _why(reasons: Sequence[Reason]) -> str:
    """The reasons as Markdown tables with the columns of the terminal's; empty where none is."""
    if not reasons:
        return ""
    from diagnose.report.why import TITLE, tables  # noqa: PLC0415  few ask

    parts = []
    for table in tables(reasons):
        heads = [*table.heads, "why", "where"]
        lines = [heads, ["---"] * len(heads)]
        for row in table.rows:
            # a bar would end the cell, even in code
            seen = code(row.seen.replace("|", r"\|")) if row.seen else ""
            lines.append([*map(escape, (*row.cells, row.text)), seen])
        text = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
        parts.append(f"**{table.heading}**\n\n{text}")
    return folded(TITLE, "\n\n".join(parts))


def _traceback(found: PythonException | None) -> list[str]:
    if found is None or not found.frames:
        return []
    lines = (
        ("> " if line.kind == "mark" else "  ") * (line.kind != "raised") + line.text
        for line in words.traceback_lines(found)
    )
    where = code(words.traceback_place(found))
    return [f"**{words.traceback_heading(found)}** {where}\n\n{fenced(chr(10).join(lines))}"]


def _evidence(diagnosis: Diagnosis) -> str:
    shown = words.quotes(diagnosis.evidence, MAX_EVIDENCE)
    blocks = [
        f"{code(words.places(items))} {escape(why)}".rstrip()
        + f"\n\n{fenced(cut(items[0].text, MAX_QUOTE))}"
        for why, items in shown
    ]
    blocks += _more(len(diagnosis.evidence) - sum(len(items) for _, items in shown))
    return "\n\n".join(blocks)


def _chain(diagnosis: Diagnosis) -> str:
    rows = []
    for step in words.steps(diagnosis.causal_chain, MAX_CHAIN):
        start = f"{step.start}: " if step.start else ""
        place = f" {code(step.place)}" if step.place else ""
        rows.append(f"- {start}{escape(step.event)}{place}")
    rows += _more(len(diagnosis.causal_chain) - MAX_CHAIN)
    return "\n".join(rows)


def _more(count: int) -> list[str]:
    return [f"- … and {count} more in the JSON output"] if count > 0 else []


def folded(heading: str, body: str) -> str:
    """A part that opens when its heading is clicked; empty without a body."""
    if not body:
        return ""
    return f"<details><summary>{heading}</summary>\n\n{body}\n\n</details>"


# --- the text of an issue on GitHub: never longer than one may be ---------------------------------

# What does not fit is left out from the end, where the details are, and the last line says so.
LIMIT = 65_536  # characters of an issue: "body is too long (maximum is 65536 characters)"
MAX_NOTES = 20
_SPARE = 400  # characters for the last lines


def issue(job: Job, diagnosis: Diagnosis, wish: Wish) -> str:
    """The whole text, without people if so wished."""
    redactor = learn_around(job, diagnosis, Redactor()) if wish.redact else None
    return render_issue(diagnosis, redact=wish.redact, redactor=redactor)


def render_issue(
    diagnosis: Diagnosis, *, redact: bool = True, redactor: Redactor | None = None
) -> str:
    """The text, at most LIMIT characters, ending with a newline; as `markdown.render` masks it."""
    diagnosis = safe(diagnosis, (redactor or Redactor()) if redact else None)
    kept, left_out = fitting([*parts(diagnosis), _notes(diagnosis)], LIMIT - _SPARE)
    if left_out:
        what = f"{len(left_out)} {plural(len(left_out), 'section')}"
        kept.append(f"*{what} left out: longer than an issue may be. Attach the JSON output.*")
    made = "log lines masked" if redact else "**not masked: check it before you post it**"
    kept.append(f"<sub>diagnose {__version__}, {made}.</sub>")
    return "\n\n".join(kept) + "\n"


def length(part: str) -> int:
    """What a part may count: GitHub may take a line's end as two characters, others as UTF-16."""
    return len(part.encode("utf-16-le")) // 2 + part.count("\n") + 4


def fitting(given: Sequence[str], limit: int) -> tuple[list[str], list[int]]:
    """The parts that fit into so many characters, and the places of those left out."""
    kept: list[str] = []
    left_out: list[int] = []
    for place, part in enumerate(given):
        if part and length(part) <= limit:
            kept.append(part)
            limit -= length(part)
        elif part:
            left_out.append(place)
    return kept, left_out


def _notes(diagnosis: Diagnosis) -> str:
    notes = [f"- {escape(words.sentence(note))}" for note in diagnosis.notes[:MAX_NOTES]]
    if len(diagnosis.notes) > MAX_NOTES:
        notes.append(f"- … and {len(diagnosis.notes) - MAX_NOTES} more")
    return folded("Notes on the input", "\n".join(notes))
