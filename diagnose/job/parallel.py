"""The sources of a large job, scanned by several processes."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from concurrent.futures import Executor, as_completed
from functools import lru_cache, partial
from pathlib import Path

from diagnose.catalog.load import load_catalog
from diagnose.ingest.source import Source
from diagnose.match.compile import Matcher, compile_matcher
from diagnose.match.scanner import SourceScan, scan_source


def scan_in(
    executor: Executor,
    sources: Sequence[Source],
    patterns: Sequence[str | Path],
    matcher: Matcher,
) -> list[SourceScan]:
    """Scan sources in other processes; those that only exist in this one are scanned here."""
    scan = partial(_scan_elsewhere, tuple(str(path) for path in patterns))
    scans: dict[int, SourceScan] = {}
    sent = {
        executor.submit(scan, source): number
        for number, source in enumerate(sources)
        if _portable(source)
    }
    try:
        for number in set(range(len(sources))) - set(sent.values()):
            scans[number] = scan_source(sources[number], matcher)
        # As they come: those sent later know what these took of their archive's quota.
        for future in as_completed(sent):
            found = scans[sent[future]] = future.result()
            source = sources[sent[future]]
            source.take_back(found.source)
            found.source = source
    finally:
        for future in sent:
            future.cancel()
    return [scans[number] for number in range(len(sources))]


def _portable(source: Source) -> bool:
    """Whether a source can be sent to another process; standard input cannot."""
    try:
        pickle.dumps(source)
    except (TypeError, AttributeError, pickle.PicklingError):
        return False
    return True


def _scan_elsewhere(patterns: tuple[str, ...], source: Source) -> SourceScan:
    """Scan one source in another process, whose matcher is compiled or cached there."""
    return scan_source(source, _matcher(patterns))


@lru_cache(maxsize=1)
def _matcher(patterns: tuple[str, ...]) -> Matcher:
    return compile_matcher(load_catalog([Path(path) for path in patterns]))
