"""A diagnosis as the text of an issue on GitHub: never longer than one may be.

It is the Markdown of `report.markdown`, in which log text can neither close its fence nor mention
or link anything, with the notes and what made it. What does not fit is left out from the end,
where the details are, and the last line says so.
"""

from __future__ import annotations

from diagnose import __version__
from diagnose.diagnosis import Diagnosis
from diagnose.job.model import Job
from diagnose.redact.redactor import Redactor
from diagnose.report import Wish, words
from diagnose.report.markdown import escape, folded, parts
from diagnose.report.safe import learn_around, safe
from diagnose.text.ranks import plural

LIMIT = 65_536  # characters of an issue: "body is too long (maximum is 65536 characters)"
MAX_NOTES = 20
_SPARE = 400  # characters for the last lines


def report(job: Job, diagnosis: Diagnosis, wish: Wish) -> str:
    """The whole text, without people if so wished."""
    redactor = learn_around(job, diagnosis, Redactor()) if wish.redact else None
    return render(diagnosis, redact=wish.redact, redactor=redactor)


def render(diagnosis: Diagnosis, *, redact: bool = True, redactor: Redactor | None = None) -> str:
    """The text, at most LIMIT characters, ending with a newline; as `markdown.render` masks it."""
    diagnosis = safe(diagnosis, (redactor or Redactor()) if redact else None)
    kept: list[str] = []
    dropped = 0
    left = LIMIT - _SPARE
    for part in [*parts(diagnosis), _notes(diagnosis)]:
        # GitHub may count a line's end as two characters, and others as UTF-16 does.
        length = len(part.encode("utf-16-le")) // 2 + part.count("\n") + 4
        if part and length <= left:
            kept.append(part)
            left -= length
        else:
            dropped += bool(part)
    if dropped:
        what = f"{dropped} {plural(dropped, 'section')}"
        kept.append(f"*{what} left out: longer than an issue may be. Attach the JSON output.*")
    made = "log lines masked" if redact else "**not masked: check it before you post it**"
    kept.append(f"<sub>diagnose {__version__}, {made}.</sub>")
    return "\n\n".join(kept) + "\n"


def _notes(diagnosis: Diagnosis) -> str:
    notes = [f"- {escape(words.sentence(note))}" for note in diagnosis.notes[:MAX_NOTES]]
    if len(diagnosis.notes) > MAX_NOTES:
        notes.append(f"- … and {len(diagnosis.notes) - MAX_NOTES} more")
    return folded("Notes on the input", "\n".join(notes))
