"""A diagnosis as a message for Slack: JSON to post to an incoming webhook or chat.postMessage.

By Slack's reference of Block Kit: at most 50 blocks a message, 3,000 characters a text of a
section, 150 a header. In mrkdwn only `&`, `<` and `>` are written as entities, and only what stands
in `<…>` mentions anybody; `verbatim` keeps Slack from looking for names and addresses itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from diagnose.catalog.schema import Run
from diagnose.diagnosis import Diagnosis, RemedyStep
from diagnose.job.model import Job
from diagnose.redact.redactor import Redactor
from diagnose.report import Wish, words
from diagnose.report.safe import cut, escaped, learn_around, safe

MAX_BLOCKS, MAX_TEXT, MAX_HEADER = 50, 3000, 150
MAX_EVIDENCE, MAX_CHAIN, MAX_QUOTE = 5, 10, 600

_BLANK = "\u200b"  # of no width
# What Slack shows as a picture; of those that are numbers there are two.
_EMOJI = re.compile(r":(?=(?:[\w+'-]{0,40}[A-Za-z_+'-][\w+'-]{0,40}|100|1234):)")
_FENCE = re.compile(r"`(?=``)")
_WIDEST = 6  # characters that one takes at most: `&amp;`, and the blank behind a colon
_COLOURS = {"hung": ":red_circle:", "failed": ":red_circle:", "healthy": ":large_green_circle:",
            "running": ":large_green_circle:", "unknown": ":large_yellow_circle:"}  # fmt: skip

Block = dict[str, Any]


def report(job: Job, diagnosis: Diagnosis, wish: Wish) -> str:
    """The message as JSON, without people if so wished."""
    redactor = learn_around(job, diagnosis, Redactor()) if wish.redact else None
    message = render(diagnosis, redact=wish.redact, redactor=redactor)
    return escaped(json.dumps(message, ensure_ascii=False, indent=2)) + "\n"


def render(
    diagnosis: Diagnosis, *, redact: bool = True, redactor: Redactor | None = None
) -> dict[str, Any]:
    """`blocks`, and `text` for notifications."""
    diagnosis = safe(diagnosis, (redactor or Redactor()) if redact else None)
    heading = f"{diagnosis.verdict.upper()}: {words.titled(diagnosis)}"
    blocks: list[Block] = [
        {"type": "header",
         "text": {"type": "plain_text", "text": cut(heading, MAX_HEADER), "emoji": False}},
    ]  # fmt: skip
    summary = words.sentence(diagnosis.root_cause.summary)
    colour = _COLOURS[diagnosis.verdict]
    blocks += _sections([f"{colour} {_line(summary)}"])
    blocks += _sections(_facts(diagnosis))
    for heading_, steps in words.remedy_groups(diagnosis.remedies):
        blocks += _sections([f"*{heading_}*", *(_step(number, step) for number, step in steps)])
    blocks += _sections(_evidence(diagnosis))
    blocks += _sections(_chain(diagnosis))
    if len(blocks) > MAX_BLOCKS:
        left_out = len(blocks) - MAX_BLOCKS + 1
        more = _mrkdwn(f"{left_out} more parts: see the JSON output")
        blocks[MAX_BLOCKS - 1 :] = [{"type": "context", "elements": [more]}]
    fallback = words.joined(heading, summary)
    return {"text": _fitted(fallback, MAX_TEXT), "blocks": blocks}


def mrkdwn(text: str) -> str:
    """`text` (one line) so that it shows as it is, and mentions nobody."""
    return _EMOJI.sub(f":{_BLANK}", _entities(_unfenced(text)))


def code(text: str) -> str:
    """`text` (one line) as inline code; a backtick, which would end it, becomes a quote."""
    return f"`{_entities(text).replace('`', chr(39))}`" if text else ""


def fenced(text: str, limit: int = MAX_TEXT) -> str:
    """`text` as a block of code that it cannot end, at most `limit` characters."""
    return f"```\n{_fitted(_unfenced(text), limit - 8)}\n```"


def _unfenced(text: str) -> str:
    """`text` in which no three backticks follow each other."""
    return _FENCE.sub(f"`{_BLANK}", text)


def _entities(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _fitted(text: str, limit: int) -> str:
    """`text` with entities, at most `limit` characters; no entity is cut."""
    while len(made := _entities(text)) > limit:
        text = cut(text, max(1, min(len(text) - 1, len(text) - (len(made) - limit) // 5 - 1)))
    return made


def _sections(parts: list[str]) -> Iterator[Block]:
    """Parts joined line by line into as few sections as they fit in."""
    text = ""
    for part in parts:
        if text and len(text) + 1 + len(part) > MAX_TEXT:
            yield section(text)
            text = ""
        text = f"{text}\n{part}" if text else part
    if text:
        yield section(text)


def section(text: str) -> Block:
    """A part of a message with this text in mrkdwn."""
    return {"type": "section", "text": _mrkdwn(text)}


def _mrkdwn(text: str) -> dict[str, Any]:
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def _line(text: str, limit: int = MAX_TEXT // _WIDEST - 50) -> str:
    """A line of prose of so many characters; by default such as fits a section by itself."""
    return mrkdwn(cut(text, limit))


def _facts(diagnosis: Diagnosis) -> list[str]:
    return [
        f"*{label.removeprefix('last ').capitalize()}:* "
        + (code(text) if label == "cause" else _line(text))
        for label, text in words.facts(diagnosis).items()
        if text
    ]


def _step(number: int, step: RemedyStep) -> str:
    text = f"{number}. {_line(words.sentence(step.do))}"
    caution = words.caution(step)
    if caution:
        text += f" *{mrkdwn(caution)}*"
    for label, run in words.runs_of(step):
        text += _run(label, run)
    return text if len(text) <= MAX_TEXT else text[: text.index("\n")]


def _run(label: str, run: Run) -> str:
    if run.kind == "note":
        return "\n" + _line(words.note_of(run, label))
    return ("\n" + _line(f"{label}:") if label else "") + "\n" + fenced("\n".join(run.lines), 1000)


def _evidence(diagnosis: Diagnosis) -> list[str]:
    shown = words.quotes(diagnosis.evidence, MAX_EVIDENCE)
    if not shown:
        return []
    parts = ["*Evidence*"]
    for why, items in shown:
        where = code(cut(words.places(items), 200))
        parts.append(f"{where} {_line(why, 300)}".rstrip())
        parts.append(fenced(cut(items[0].text, MAX_QUOTE)))
    more = len(diagnosis.evidence) - sum(len(items) for _, items in shown)
    return [*parts, f"… and {more} more"] if more > 0 else parts


def _chain(diagnosis: Diagnosis) -> list[str]:
    steps = words.steps(diagnosis.causal_chain, MAX_CHAIN)
    if not steps:
        return []
    parts = ["*Sequence of events*"]
    for step in steps:
        place = f" {code(cut(step.place, 150))}" if step.place else ""
        start = f"{_line(step.start, 60)}: " if step.start else ""
        parts.append(f"• {start}{_line(step.event, 250)}{place}")
    more = len(diagnosis.causal_chain) - MAX_CHAIN
    return [*parts, f"… and {more} more"] if more > 0 else parts
