"""A diagnosis for the terminal: the verdict and first steps on the first screen, then the proof.

Plain text with styles laid over it: without colour, in a pipe or with an ASCII-only output the
same words stand in the same places. Text from logs is never parsed as markup.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from diagnose.diagnosis import WELL, ChainLink, Diagnosis, Evidence, PythonException, RemedyStep
from diagnose.job.model import Job
from diagnose.redact.redactor import Redactor, secrets_only
from diagnose.report import Wish, words
from diagnose.report.safe import learn_around, safe

MAX_WIDTH = 110  # columns of prose; longer lines are hard to read
MAX_EVIDENCE = 12  # kinds of it
MAX_CHAIN = 20
MAX_ALTERNATIVES = 5
MAX_QUOTE_LINES = 5  # of one quoted log line

_LABEL = 14  # width of the column of labels
_VERDICT_STYLE = {
    "hung": "bold red",
    "failed": "bold red",
    "healthy": "bold green",
    "running": "bold green",
    "unknown": "bold yellow",
}
_LINE_STYLE = {"own": "", "mark": "bold", "code": "cyan", "folded": "dim", "raised": "bold red"}
_ASCII = str.maketrans(
    {"·": "-", "│": "|", "…": "...", "–": "-", "—": "-", "→": "->", "×": "x", "≥": ">=", "≤": "<="}
    | dict.fromkeys("‘’", "'")
    | dict.fromkeys("“”", '"')
)


def report(job: Job, diagnosis: Diagnosis, wish: Wish) -> str:
    """What a terminal is to show; names of people stay."""
    console = wish.console()
    with console.capture() as capture:
        render(diagnosis, console, learn_around(job, diagnosis, secrets_only()), why=wish.why)
    return capture.get()


def render(
    diagnosis: Diagnosis, console: Console, redactor: Redactor | None = None, *, why: bool = False
) -> None:
    """Print `diagnosis`; notes are left to the caller.

    `redactor` is one that knows secrets of the job already. With `why` the verdict is followed by
    how it came about instead of what to do.
    On a terminal which the text does not fit, the verdict is said again at the end, where the
    reader's eyes are.
    """
    page = Page(console)
    diagnosis = safe(diagnosis, redactor or secrets_only(), why=why)
    _headline(page, diagnosis)
    if why:
        from diagnose.report.why import print_tables  # noqa: PLC0415  few ask

        print_tables(page, diagnosis.reasons)
    else:
        _body(page, diagnosis)
    if console.is_terminal and page.lines >= console.height:
        page.heading("Summary")
        _headline(page, diagnosis, summary=False)


def _body(page: Page, diagnosis: Diagnosis) -> None:
    _facts(page, diagnosis)
    if diagnosis.verdict == "unknown":
        _missing_evidence(page, diagnosis)
    for heading, steps in words.remedy_groups(diagnosis.remedies):
        page.heading(heading)
        for number, step in steps:
            _step(page, number, step)
    _advice(page, diagnosis)
    _traceback(page, diagnosis.exception)
    _evidence(page, diagnosis.evidence)
    _chain(page, diagnosis.causal_chain)
    _alternatives(page, diagnosis)
    if diagnosis.verdict != "unknown":
        _missing_evidence(page, diagnosis)


class Page:
    """Writes wrapped paragraphs to a console and counts the lines."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.lines = 0
        self.ascii = not console.encoding.lower().startswith("utf")
        # one column stays free: some terminals wrap when the last one is used
        self.full = max(20, console.width - 1)
        self.width = min(MAX_WIDTH, self.full)

    def line(self, text: Text) -> None:
        """One line, however long it is."""
        if self.ascii:
            plain = text.plain.translate(_ASCII)
            text = text if plain == text.plain else Text(plain, style=text.style)
        self.lines += 1
        self.console.print(text, soft_wrap=True)

    def blank(self) -> None:
        """An empty line."""
        self.line(Text())

    def heading(self, text: str) -> None:
        """A heading behind an empty line."""
        self.blank()
        self.paragraph(Text(text, style="bold underline"))

    def paragraph(
        self,
        text: Text,
        *,
        first: str = "",
        indent: int | None = None,
        style: str = "",
        full: bool = False,
    ) -> None:
        """`text` wrapped, after `first` on the first line and `indent` blanks on the others.

        With `full` it may be as wide as the terminal.
        """
        width = self.full if full else self.width
        hang = len(first) if indent is None else indent
        for index, line in enumerate(self.wrapped(text, max(hang, len(first)), width)):
            start = first if index == 0 else " " * hang
            self.line(Text().append(start, style).append_text(line))

    def field(self, label: str, text: str) -> None:
        """A labelled fact of the first screen; nothing when there is no text."""
        if text:
            self.paragraph(Text(text), first=f"  {label:<{_LABEL - 2}}", style="dim")

    def verbatim(self, text: str, indent: int, style: str) -> None:
        """Something to copy: its own lines, never broken by us."""
        for line in text.splitlines():
            self.line(Text(" " * indent).append(line, style=style))

    def quote(self, text: str, indent: int) -> None:
        """A log line behind a bar, cut after a few lines."""
        bar = " " * indent + "│ "
        lines = self.wrapped(Text(text), len(bar), self.full)
        for index, line in enumerate(lines[:MAX_QUOTE_LINES]):
            cut = index == MAX_QUOTE_LINES - 1 and len(lines) > MAX_QUOTE_LINES
            if cut:
                over = line.cell_len + 2 - (self.full - len(bar))
                if over > 0:  # rich takes 0 for all
                    line.right_crop(over)
                line.append(" …")
            self.line(Text().append(bar, "dim").append_text(line))

    def table(
        self,
        heads: Sequence[str],
        rows: Sequence[Sequence[str]],
        tails: Sequence[Text | str],
        tail_width: int,
        last: str = "",
    ) -> None:
        """Rows of cells: the first to the left and cut for room, the others to the right.

        Each ends in its tail, headed `last`, for which `tail_width` columns are kept free.
        """
        width = [max(len(row[at]) for row in [heads, *rows]) for at in range(len(heads))]
        room = self.full - 2 - sum(width[1:]) - 2 * len(heads) - tail_width
        width[0] = max(8, min(width[0], room))
        for row, tail in zip([heads, *rows], [last, *tails], strict=True):
            name = row[0] if len(row[0]) <= width[0] else f"{row[0][: width[0] - 1]}…"
            cells = [f"{name:<{width[0]}}"]
            cells += [f"{cell:>{width[at]}}" for at, cell in enumerate(row[1:], start=1)]
            line = Text("  " + "  ".join([*cells, ""]), style="dim" if row is heads else "")
            line.append_text(tail if isinstance(tail, Text) else Text(tail))
            line.truncate(self.full, overflow="ellipsis")
            line.rstrip()
            self.line(line)

    def more(self, count: int, indent: int = 2) -> None:
        """That so many more of a list are not shown, if there are any."""
        if count > 0:
            text = Text(f"… and {count} more in the JSON output", style="dim")
            self.paragraph(text, first=" " * indent)

    def wrapped(self, text: Text, used: int, width: int | None = None) -> list[Text]:
        """Lines of `text` where `used` columns are taken."""
        room = max(10, (width or self.width) - used)
        lines = list(text.wrap(self.console, room, overflow="fold"))
        for line in lines:
            line.rstrip()
        return lines


def _headline(page: Page, diagnosis: Diagnosis, *, summary: bool = True) -> None:
    title = diagnosis.root_cause.title
    text = Text.assemble((title, "bold"), words.titled(diagnosis)[len(title) :])
    verdict, style = diagnosis.verdict, _VERDICT_STYLE[diagnosis.verdict]
    if verdict in WELL and words.is_bad(diagnosis):
        style = "bold yellow"
    page.paragraph(text, first=f"{verdict.upper()}  ", indent=2, style=style)
    if summary and diagnosis.root_cause.summary:
        page.paragraph(Text(words.sentence(diagnosis.root_cause.summary)), first="  ")


def _facts(page: Page, diagnosis: Diagnosis) -> None:
    fields = words.facts(diagnosis)
    for apart in ("longer timeout", "restart"):  # sections of their own
        del fields[apart]
    if any(fields.values()):
        page.blank()
    for label, text in fields.items():
        page.field(label, text)


def _step(page: Page, number: int, step: RemedyStep) -> None:
    first = f"  {number}. "
    page.paragraph(Text(words.sentence(step.do)), first=first)
    if step.why:
        page.paragraph(Text(words.sentence(step.why), style="dim"), first=" " * len(first))
    caution = words.caution(step)
    if caution:
        page.paragraph(Text(caution, style="yellow"), first=" " * len(first))
    indent = len(first) + 2
    for label, run in words.runs_of(step):
        if run.kind == "note":
            page.paragraph(Text(words.note_of(run, label)), first=" " * indent)
            continue
        if label:
            page.paragraph(Text(f"{label}:", style="dim"), first=" " * indent)
        for line in run.lines:
            page.verbatim(line, indent, "cyan")


def _advice(page: Page, diagnosis: Diagnosis) -> None:
    if not words.is_bad(diagnosis):
        return
    if words.has_ended_badly(diagnosis):
        page.heading("Would a longer timeout help?")
        page.paragraph(Text(words.longer_timeout(diagnosis)), first="  ")
    restart = words.restart(diagnosis)
    if restart:
        page.heading("Restart")
        page.paragraph(Text(restart), first="  ")


def _traceback(page: Page, found: PythonException | None) -> None:
    if found is None or not found.frames:
        return
    page.heading(words.traceback_heading(found))
    page.paragraph(Text(words.traceback_place(found), style="magenta"), first="  ")
    for line in words.traceback_lines(found):
        first = "  > " if line.kind == "mark" else "    "
        page.paragraph(Text(line.text, _LINE_STYLE[line.kind]), first=first, indent=8, full=True)


def _evidence(page: Page, evidence: list[Evidence]) -> None:
    if evidence:
        page.heading("Evidence")
    shown = words.quotes(evidence, MAX_EVIDENCE)
    for why, items in shown:
        text = Text.assemble((words.places(items), "magenta"), f"  {why}" if why else "")
        page.paragraph(text, first="  ", indent=4)
        page.quote(items[0].text, 4)
    page.more(len(evidence) - sum(len(items) for _, items in shown))


def _chain(page: Page, chain: list[ChainLink]) -> None:
    steps = words.steps(chain, MAX_CHAIN)
    if not steps:
        return
    page.heading("Sequence of events")
    wide, wide_who = max(len(step.time) for step in steps), max(len(step.who) for step in steps)
    for step in steps:
        columns = [f"{step.time:<{wide}}  "] * bool(wide)
        columns += [f"{step.who:<{wide_who}}  "] * bool(wide_who)
        text = Text(step.event)
        if step.place:
            text = Text.assemble(text, " ", (f"[{step.place}]", "magenta"))
        page.paragraph(text, first="".join(["  ", *columns]))
    page.more(len(chain) - MAX_CHAIN)


def _alternatives(page: Page, diagnosis: Diagnosis) -> None:
    if diagnosis.alternatives:
        page.heading(words.alternatives_heading(diagnosis))
    for other in diagnosis.alternatives[:MAX_ALTERNATIVES]:
        text = Text.assemble(
            (other.cause, "bold"),
            f" ({other.confidence} confidence): {words.sentence(other.why_not)}",
        )
        page.paragraph(text, first="  ", indent=4)
    page.more(len(diagnosis.alternatives) - MAX_ALTERNATIVES)


def _missing_evidence(page: Page, diagnosis: Diagnosis) -> None:
    if diagnosis.missing_evidence:
        page.heading("Collect this next time")
    for item in diagnosis.missing_evidence:
        page.paragraph(Text(item.what), first="  - ")
        if item.how not in ("", item.what):
            page.paragraph(Text(item.how, style="dim"), first="    ")
