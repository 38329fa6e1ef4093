"""Errors that a person can act on."""

from __future__ import annotations


class InputError(Exception):
    """The input cannot be used at all (absent, unreadable, empty).

    The message is one line, says what is wrong with which input, and is shown as it is. The
    command line ends with exit status 2.
    """
