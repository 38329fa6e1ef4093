"""Names of log levels, as printed and as the timeline spells them."""

from __future__ import annotations

# For regular expressions: longest first, so that WARNING is not read as WARN.
LEVEL = "DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL|NOTICE|TRACE|SUCCESS"

NAMES = {
    "DEBUG": "DEBUG", "TRACE": "DEBUG", "V": "DEBUG", "D": "DEBUG",
    "INFO": "INFO", "NOTICE": "INFO", "SUCCESS": "INFO", "I": "INFO",
    "WARNING": "WARNING", "WARN": "WARNING", "W": "WARNING",
    "ERROR": "ERROR", "ERR": "ERROR", "E": "ERROR",
    "CRITICAL": "FATAL", "FATAL": "FATAL", "F": "FATAL", "C": "FATAL",
}  # fmt: skip

# Syslog priorities 0-7: emerg alert crit err warning notice info debug.
SYSLOG_LEVELS = ("FATAL", "FATAL", "FATAL", "ERROR", "WARNING", "INFO", "INFO", "DEBUG")


def level(text: str) -> str | None:
    """The level named `text` in any case, or None."""
    return NAMES.get(text.upper())
