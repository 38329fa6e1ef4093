"""Lists the messages of failure in a checkout of a source, and what of them the catalog covers.

    python tools/message_sites.py SOURCE CHECKOUT [--version V] [--missing] [--json FILE]
    python tools/message_sites.py --page

SOURCE is a name in tools/sources/*.yaml. Nothing of a checkout is executed or kept but counts.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from sites.judge import Judge, Judgement, catalog_of, tally  # noqa: E402
from sites.page import Counts, keep, page  # noqa: E402
from sites.sources import SourceSpec, read_specs, sites_of  # noqa: E402
from sites.template import Site  # noqa: E402

from diagnose.errors import CatalogError  # noqa: E402

Judged = list[tuple[Site, Judgement]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    options = _options().parse_args(arguments)
    specs = read_specs(options.sources)
    if options.page:
        kept = json.loads((HERE / "coverage.json").read_text(encoding="utf-8"))
        (HERE.parent / "docs" / "coverage.md").write_text(page(kept, specs), encoding="utf-8")
        return 0
    if options.source not in specs or options.checkout is None:
        print("sources:", *specs, file=sys.stderr)
        return 2
    spec = specs[options.source]
    version = options.version or options.checkout.resolve().name.partition("-")[2]
    sites = sites_of(spec, options.checkout)
    try:
        judge = Judge(catalog_of(options.patterns))
    except CatalogError as error:
        print(error, file=sys.stderr)
        return 2
    left_out = [site for site in sites if _reasoned(spec, site)]
    judged = [(site, judge.judge(site)) for site in sites if site not in left_out]
    counts = _counts(judged, len(left_out))
    print(_line(spec, version, counts))
    if options.all or options.missing:
        _list(judged, options)
    if options.left_out:
        _list([(site, Judgement("none", "left out")) for site in left_out], options)
    if options.json:
        keep(options.json, spec.name, version, counts)
    return 0


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("source", nargs="?")
    parser.add_argument("checkout", nargs="?", type=Path)
    parser.add_argument("--version", help="otherwise what follows the first dash in its name")
    parser.add_argument("--patterns", type=Path, help="a catalog other than the shipped one")
    parser.add_argument("--sources", type=Path, default=HERE / "sources")
    parser.add_argument("--missing", action="store_true", help="list what nothing covers")
    parser.add_argument("--all", action="store_true", help="list every site")
    parser.add_argument("--left-out", action="store_true", help="list what tells of no failure")
    parser.add_argument("--samples", action="store_true", help="list them as printed lines")
    parser.add_argument("--json", type=Path, help="keep the counts in this file")
    parser.add_argument("--page", action="store_true", help="write docs/coverage.md")
    return parser


def _reasoned(spec: SourceSpec, site: Site) -> bool:
    printed = f"{site.kind_of_error}: {site.text}"
    return any(
        row.template.search(site.text) or row.template.search(printed) for row in spec.no_failures
    )


def _counts(judged: Judged, left_out: int) -> Counts:
    kinds = Counter(judgement.kind for _, judgement in judged)
    by = tally(judgement for _, judgement in judged)
    numbers = (kinds["named"], kinds["word"], kinds["family"], kinds["none"])
    return Counts(len(judged), *numbers, left_out, by)


def _line(spec: SourceSpec, version: str, counts: Counts) -> str:
    return (
        f"{spec.name} {version}: {counts.total} sites, named {counts.named}, word {counts.word}, "
        f"family {counts.family}, none {counts.none}, left out {counts.left_out}: "
        f"{counts.share} % covered, wanted {spec.need} %"
    )


def _list(judged: Judged, options: argparse.Namespace) -> None:
    for site, judgement in judged:
        covered = judgement.kind in ("named", "word")
        if options.all or not covered:
            what = f"{judgement.kind} {judgement.id}".strip()
            shown = site.samples()[0] if options.samples else f"{site.kind_of_error} {site.text}"
            print(f"{site.file}:{site.number} [{what}] {shown.strip()}")


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(main())
