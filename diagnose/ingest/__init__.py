"""Bytes of a job: its sources found, decompressed, decoded, and cut into clean chunks."""

from diagnose.ingest.find import find_sources, stdin_source, text_source
from diagnose.ingest.source import Chunk, Source

__all__ = ["Chunk", "Source", "find_sources", "stdin_source", "text_source"]
