"""Removing terminal escape sequences from bytes (ECMA-48).

Known are CSI, the string sequences (OSC, DCS, PM, APC, SOS), character set selection and the
two-byte ones. They are bounded and never go across a line end or a carriage return; of what is none
only the ESC goes.
"""

from __future__ import annotations

from diagnose.lazy import expression

LONGEST = 2048 + 4  # bytes of a sequence

# A run of ESC is taken at once: each match costs a hundred bytes of memory.
_ESCAPE = expression(
    rb"\x1b+(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]"
    rb"|[\]PX^_][^\x07\x1b\r\n]{0,2048}(?:\x07|\x1b\\)"
    rb"|[ -/]{1,8}[0-~]"
    rb"|[0-OQ-WYZ\\`-~])?"
)


def without_escapes(data: bytes) -> bytes:
    """The data without escape sequences."""
    return _ESCAPE.sub(b"", data)
