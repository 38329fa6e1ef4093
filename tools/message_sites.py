"""Lists the messages of failure in a checkout of a source, and what the catalog says of each.

    python tools/message_sites.py SOURCE CHECKOUT [--version V] [--missing | --all] [--samples]

SOURCE is a name in tools/sources/*.yaml. Nothing of a checkout is executed or kept.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from sites.judge import Judge, Judgement, catalog_of  # noqa: E402
from sites.sources import SourceSpec, read_specs, sites_of  # noqa: E402
from sites.template import Site  # noqa: E402

from diagnose.errors import CatalogError  # noqa: E402

Judged = list[tuple[Site, Judgement]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    options = _options().parse_args(arguments)
    specs = read_specs(options.sources)
    if options.source not in specs:
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
    print(_line(f"{spec.name} {version}", judged, len(left_out)))
    if options.all or options.missing:
        _list(judged, options)
    if options.left_out:
        _list([(site, Judgement("none", "left out")) for site in left_out], options)
    return 0


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("source")
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--version", help="otherwise what follows the first dash in its name")
    parser.add_argument("--patterns", type=Path, help="a catalog other than the shipped one")
    parser.add_argument("--sources", type=Path, default=HERE / "sources")
    parser.add_argument("--missing", action="store_true", help="list what nothing knows")
    parser.add_argument("--all", action="store_true", help="list every site")
    parser.add_argument("--left-out", action="store_true", help="list what tells of no failure")
    parser.add_argument("--samples", action="store_true", help="list them as printed lines")
    return parser


def _reasoned(spec: SourceSpec, site: Site) -> bool:
    printed = f"{site.kind_of_error}: {site.text}"
    return any(
        row.template.search(site.text) or row.template.search(printed) for row in spec.no_failures
    )


def _line(source: str, judged: Judged, left_out: int) -> str:
    kinds = Counter(judgement.kind for _, judgement in judged)
    return (
        f"{source}: {len(judged)} sites, named {kinds['named']}, word {kinds['word']}, "
        f"family {kinds['family']}, none {kinds['none']}, left out {left_out}"
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
