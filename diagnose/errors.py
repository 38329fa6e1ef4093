"""Errors that a person can act on."""

from __future__ import annotations


class DiagnoseError(Exception):
    """What the user gave cannot be used.

    The message is one line, says what is wrong with what, and is shown as it is. The command line
    ends with exit status 2.
    """


class InputError(DiagnoseError):
    """The input cannot be used at all (absent, unreadable, empty)."""


class CatalogError(DiagnoseError):
    """A catalog file cannot be used; the message says file, line, field and problem."""
