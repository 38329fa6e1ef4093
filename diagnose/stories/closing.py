"""The last words of a program that no signature knows: that it ended, or what it measured.

Only the last line of a source is looked at, apart from what tools and rules add below it. Words
that a program also says when a part of its start is done ("Done", "Complete", "Success") prove
nothing, so they are not among these. Such words never absolve an error: they count where the log
shows none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from diagnose.lazy import expression
from diagnose.parse.prefix import peel
from diagnose.timeline.event import Event, Timeline

Closing = Literal["ended", "measured"]

_DECORATION = " \t#*=!|<>-~_"
# What may stand below last words: rules, notes of run-time libraries, the output of `time`, dates.
_NEUTRAL = expression(
    r"(?i)[\W\d_]*(?:note:.*|.*\bieee_\w+(?:_flag\b| is signal).*|(?:real|user|sys)\s+\d+m[\d.]+s"
    r"|(?:mon|tue|wed|thu|fri|sat|sun)\w*,?\s.*\b\d\d:\d\d:\d\d\b.*)?"
)
_WHOLE = (
    r"(?:program|script|job|run|execution|analysis|simulation|calculation|computation|experiment"
    r"|tests?|benchmark|application|solver|workflow|pipeline|training|case|model run)"
)
_OVER = r"(?:completed?|finished|ended|done|over)"
_TOTAL = r"(?:execution|elapsed|wall(?:[ -]?clock)?|run|running|computation|simulation|solution)"
_ENDED = expression(
    r"(?i)(?:the )?end"
    rf"|end(?:ing)? of (?:the )?(?:{_WHOLE}|main)\b.*"
    r"|all (?:[\w-]+ ){0,3}(?:is |are |were |have |has )?(?:been )?(?:completed?|finished|done)"
    r"(?: successfully)?"
    rf"|(?:the )?{_WHOLE}\b(?: [\w.-]{{1,60}}){{0,2}}(?: is| was| has| has been)? {_OVER}"
    r"(?: successfully)?(?: (?:in|at|on|after) .*\d.*)?"
    r"|(?:(?:end(?:ed)?|finish(?:ed)?|completed|completion)(?: time| date)?"
    r"(?: at| on|\s*[:=])|end (?:time|date))\s.*\d\d:\d\d.*"
    r"|.{0,40}\b(?:exit(?:ing|ed|s)?|terminat(?:ed|ing)|ended|finished|completed?)"
    r" (?:normally|cleanly|gracefully|successfully|without (?:any )?(?:errors?|problems?))"
    r"|(?:stop )?normal (?:end|termination|completion|exit)\b.*"
    r"|(?:good)?bye"
    rf"|(?:total )?{_TOTAL}[ _]?time(?: taken| used)?(?: ?[(\[][\w.]+[)\]])?"
    r"\s*(?:[:=]|is|was)\s*[\d.:]+.*"
    r"|(?:total )?time (?:elapsed|taken|used)\s*[:=]\s*[\d.:]+.*"
    rf"|total (?:{_TOTAL}[ _]?)?(?:run)?time\b[^:=]{{0,20}}[:=]\s*[\d.:]+.*"
    r"|\[ +passed +\] \d+ tests?|100% tests passed.*|\d+ passed\b.*\bin \d[\d.:]*s?.*"
    r"|(?:verification|validation|self-?test|test)s?\s*[:=]?\s*(?:is |was )?(?:successful|passed)"
    r"|solution validates\b.*"
    r"|\d+ of \d+ steps \(100%\) done"
    r"|(?:训练|运行|测试|全部|任务)(?:已)?(?:完成|结束)"
)
_MEASURED = expression(
    r"(?i)(?:\[\w+\]\s*)?(?:[\w.@/()-]+[ :,]+){0,5}?"
    r"(?:bandwidth|bw|throughput|latency|(?:inference|generation|decoding|forward|step|iteration)"
    r" time|time per (?:iteration|step|token|sample)|g?flops?|tflops?|accuracy|acc|top-?[15]|f1"
    r"|m?ap|miou|bleu|rouge\S*|perplexity|ppl|auc|max (?:write|read)|speed-?up)\b[^:=\d]{0,25}[:=]"
    r"\s*\d\S*(?:[ ,;%/(].*)?"
)
_REFUTED = expression(
    r"(?i)\b(?:not|never|no|un\w+ed|fail\w*|errors?\b(?<!without errors)|abort\w*|kill\w*|crash\w*"
    r"|interrupt\w*|cancel\w*|time ?out|timed out|wait\w*|until|before|if|unable|limit|expect\w*"
    r"|available|free|peak|theoretical|request\w*|requir\w*|target|desired)\b"
)
_WITHOUT = expression(r"(?i)without (?:any )?(?:errors?|problems?)|\b0 (?:tests )?failed\b")


def closing(timeline: Timeline) -> Closing | None:
    """What the last words of a job say; each rank with a source of its own has to say so."""
    edges: dict[str, list[Event]] = defaultdict(list)
    for event in timeline.kind("edge"):
        if event.signal is None:
            edges[event.source].append(event)
    found = {source: _closing_of(own) for source, own in edges.items()}
    ranked = {source for source, own in edges.items() if own[-1].rank is not None}
    if any(found[source] is None for source in ranked):
        return None
    if "ended" in found.values():
        return "ended"
    return "measured" if "measured" in found.values() else None


def _closing_of(edges: Sequence[Event]) -> Closing | None:
    """The same of one source, by its last line that is not neutral."""
    message = next(_messages(reversed(edges)), None)
    if message is None or _REFUTED.search(_WITHOUT.sub("", message)):
        return None
    if _ENDED.fullmatch(message):
        return "ended"
    return "measured" if _MEASURED.fullmatch(message) else None


def _messages(edges: Iterable[Event]) -> Iterator[str]:
    for edge in edges:
        message = peel(edge.text).message.strip(_DECORATION)
        if not _NEUTRAL.fullmatch(message):
            yield "" if edge.severity == "error" else message.rstrip(" .!")
