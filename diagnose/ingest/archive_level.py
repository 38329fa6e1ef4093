"""One archive while it is read, and the sources that it gives at its end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from diagnose.ingest.archive_names import Names, short
from diagnose.ingest.quota import Quota
from diagnose.ingest.raw import Store
from diagnose.ingest.recognise import nothing
from diagnose.ingest.source import Remarks, Source
from diagnose.text.ranks import counted


@dataclass(slots=True)
class Level:
    """One archive while it is read: the outer one, or one inside it."""

    name: str
    inside: str
    names: Names
    quota: Quota
    found: dict[str, Source] = field(default_factory=dict)
    inner: dict[str, Store] = field(default_factory=dict)
    remarks: Remarks = field(default_factory=Remarks)

    def put(self, member: str, what: Source | Store) -> None:
        """Take in a member; the last one of a name stays."""
        self.found.pop(member, None)
        self.inner.pop(member, None)
        if isinstance(what, Source):
            self.found[member] = what
        else:
            self.inner[member] = what

    def sources(self, most: int) -> list[Source]:
        """Those of the members, of members left out, and of what there is to say of the archive.

        `most`: members that may be read of this archive and all inside each other.
        """
        names, remarks = self.names, self.remarks
        found = [*self.found.values()]
        for one in names.refused:
            found.append(nothing(f"{self.name}!{one.name}", "skipped", one.why, unread=one.unread))
        if names.more_refused:
            tell = remarks.cut if names.more_unread else remarks.note
            tell(f"{counted(names.more_refused, 'more member')} not read")
        if names.beyond:
            remarks.cut(f"only the first {most} members were read")
        twice = [member for member, count in names.copies.items() if count > 1]
        if twice:
            remarks.note(
                f"several members have the same name; the last one is read: {_some(twice)}"
            )
        on_purpose = [*_left_out(names)]
        for text in on_purpose:
            remarks.note(text)
        nothing_read = not self.found and not self.inner
        if remarks.notes:
            kind = "unreadable" if nothing_read else "skipped"
            source = nothing(self.name, kind, "; ".join(remarks.notes))
            found.append(replace(source, unread=remarks.unread, left_out=on_purpose))
        elif nothing_read and not names.refused:
            found.append(nothing(self.name, "empty", "no files in this archive"))
        return found


def _left_out(names: Names) -> Iterator[str]:
    for left_out, one, several in (
        (names.no_logs, "file that is not a log", "files that are not logs"),
        (names.hidden, "hidden entry", "hidden entries"),
    ):
        if left_out:
            words = one if len(left_out) == 1 else several
            yield f"{len(left_out)} {words} left out: {_some(sorted(left_out))}"


def _some(names: list[str]) -> str:
    return ", ".join(short(name) for name in names[:3]) + (", …" if len(names) > 3 else "")
