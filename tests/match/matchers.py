"""Matchers of catalogs that tests make."""

from __future__ import annotations

from diagnose.catalog.schema import Catalog
from diagnose.match.build import compile_all
from diagnose.match.compile import Matcher


def matcher_of(catalog: Catalog) -> Matcher:
    """The matcher of a catalog, compiled for it alone."""
    return Matcher(catalog, compile_all(catalog))
