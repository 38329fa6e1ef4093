"""Bytes of a job: its sources found, decompressed, decoded, and cut into clean chunks."""

from diagnose.ingest.find import find_sources
from diagnose.ingest.source import Chunk, Source
from diagnose.ingest.stdin import stdin_source, text_source

__all__ = ["Chunk", "Source", "find_sources", "stdin_source", "text_source"]
