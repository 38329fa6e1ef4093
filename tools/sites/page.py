"""`tools/coverage.json` and the page made of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sites.sources import SourceSpec

_HEAD = """# Coverage by source

Which messages of failure other projects print, and how many of them the catalog knows. A site is
one message template in the source of a version: what it raises or logs as an error, or as a
warning where that is about waiting or failure. `tools/message_sites.py` finds the sites in a
checkout, fills in plausible values and matches the lines with the catalog. *Signature*: an entry
for that message. *Word*: a word of a vocabulary, or a wording of a family that names a class
(`families.*`). *Form*: only an entry for any message of that form, such as any exception.
*Covered* is the share of signatures and words. *Left out* are messages that tell of no failure of
a job, by the rows `not_failures` in `tools/sources/`.

This page is generated: `python tools/message_sites.py --page`.

| source | version | sites | signature | word | form | nothing | covered | wanted | left out |
|---|---|---:|---:|---:|---:|---:|---:|---:|---:|
"""


@dataclass(frozen=True, slots=True)
class Counts:
    """What is known of one version of a source."""

    total: int
    named: int
    word: int
    family: int
    none: int
    left_out: int
    by: Mapping[str, int]

    @property
    def share(self) -> int:
        """The percentage that a signature or a word covers, rounded down."""
        return 100 * (self.named + self.word) // self.total if self.total else 0


def keep(path: Path, source: str, version: str, counts: Counts) -> None:
    """Put the counts of a version into the file."""
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    kept.setdefault(source, {})[version] = asdict(counts)
    ordered = {name: dict(sorted(kept[name].items(), key=_newest_first)) for name in sorted(kept)}
    path.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")


def _newest_first(item: tuple[str, Any]) -> list[int]:
    numbers = "".join(char if char.isdigit() else " " for char in item[0]).split()
    return [-int(number) for number in numbers]


def page(kept: Mapping[str, Mapping[str, Any]], specs: Mapping[str, SourceSpec]) -> str:
    """The page, of what the file holds."""
    return _HEAD + "".join(_rows(kept, specs)) + "".join(_details(kept, specs))


def _versions(
    kept: Mapping[str, Mapping[str, Any]], specs: Mapping[str, SourceSpec]
) -> Iterator[tuple[SourceSpec, str, Counts, bool]]:
    """Each version, and whether it is the newest of its source."""
    for name in sorted(kept, key=lambda name: specs[name].title.lower()):
        for number, (version, raw) in enumerate(kept[name].items()):
            yield specs[name], version, Counts(**raw), number == 0


def _rows(kept: Mapping[str, Mapping[str, Any]], specs: Mapping[str, SourceSpec]) -> Iterator[str]:
    for spec, version, counts, newest in _versions(kept, specs):
        title = f"[{spec.title}]({spec.repository})" if newest else ""
        wanted = f"{spec.need} %" if newest else ""
        numbers = (counts.total, counts.named, counts.word, counts.family, counts.none)
        cells = (title, version, *numbers, f"{counts.share} %", wanted, counts.left_out)
        yield "| " + " | ".join(map(str, cells)) + " |\n"


def _details(
    kept: Mapping[str, Mapping[str, Any]], specs: Mapping[str, SourceSpec]
) -> Iterator[str]:
    yield "\n## Covered by\n\nThe entries that know most of the messages of each newest version.\n"
    for spec, version, counts, newest in _versions(kept, specs):
        if newest and counts.by:
            most = [f"`{id_}` {count}" for id_, count in list(counts.by.items())[:12]]
            more = f" and {len(counts.by) - 12} more" if len(counts.by) > 12 else ""
            yield f"\n**{spec.title} {version}**: {', '.join(most)}{more}.\n"
