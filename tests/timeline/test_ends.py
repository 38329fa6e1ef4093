"""Exceptions that ended a process."""

from __future__ import annotations

from diagnose.timeline.ends import tracebacks

from .told import timeline

SCRIPT = '  File "train.py", line 9, in <module>\n    main()\n'
MAIN = f"Traceback (most recent call last):\n{SCRIPT}"
CAUGHT = 'Traceback (most recent call last):\n  File "train.py", line 40, in load\n    read()\n'
CHAIN = "\nDuring handling of the above exception, another exception occurred:\n\n"


def died(text: str) -> list[tuple[int, str]]:
    """Where tracebacks of ended processes begin, and with which words they end."""
    events = timeline(job=text)
    found = tracebacks(events).ends
    return [(line, events.at(index).text.strip()) for index, line in found.items()]


def test_a_traceback_from_the_script_on_ends_a_process() -> None:
    assert died(f"hello\n{MAIN}KeyError: 'lr'\n") == [(2, "KeyError: 'lr'")]


def test_an_interrupt_does_too() -> None:
    assert died(f"{MAIN}KeyboardInterrupt\n") == [(1, "KeyboardInterrupt")]


def test_who_caught_an_exception_lives() -> None:
    imports = f'{CAUGHT}  File "plugin.py", line 1, in <module>\nImportError: no such op\n'
    assert died(f"{CAUGHT}KeyError: 'lr'\n") == died(imports) == []


def test_tracebacks_of_one_exception_are_one_death() -> None:
    text = f"{CAUGHT}KeyError: 'lr'\n{CHAIN}{MAIN}ValueError: no learning rate\n"
    assert died(text) == [(1, "ValueError: no learning rate")]


def test_each_process_dies_once() -> None:
    text = f"{MAIN}KeyError: 'lr'\n{MAIN}ValueError: bad batch\n"
    assert died(text) == [(1, "KeyError: 'lr'"), (5, "ValueError: bad batch")]


def test_a_traceback_that_breaks_off_is_no_death_yet() -> None:
    assert died(MAIN) == []
