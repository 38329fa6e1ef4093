"""Asks a tool about each case of a benchmark folder: `python -m benchmarks.hangbench run`."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from json import dumps
from pathlib import Path
from queue import Queue

from benchmarks.hangbench.case import Answer, Case, read_answers, write_answers
from benchmarks.hangbench.commands import CommandError, Commands
from benchmarks.hangbench.tools import TOOLS, Adapter, BatchAdapter, Found, adapter

LIMIT_S = 300.0  # for one case, by the clock
ENVIRONMENT = Path(".venv-hangbench")  # where the tools are that are no part of this one


class RunError(Exception):
    """A tool cannot be run; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How a tool is run.

    fast: answer many cases in one process, where the tool can, without figures of what a case
    costs. workers: commands at a time. rerun: ask even where there is an answer.
    """

    environment: Path = ENVIRONMENT
    fast: bool = False
    workers: int = 2
    limit_s: float = LIMIT_S
    rerun: bool = False


def run(folder: Path, cases: Sequence[Case], tool: str, settings: Settings) -> int:
    """Ask `tool` about those of `cases` that it has not answered; how many these were.

    An answer of another version of the tool and, unless `fast`, one whose cost was not measured are
    asked for once more. Each answer is written as it comes, so that a run
    that was cut off goes on where it was. Raises `RunError` where the tool is not there.
    """
    if tool not in TOOLS:
        raise RunError(f"no tool {tool}; there are {', '.join(TOOLS)}")
    asked = adapter(tool)
    version = asked.version(settings.environment)
    if version is None:
        raise RunError(
            f"{tool} is not installed; `python -m benchmarks.hangbench tools "
            f"{settings.environment}` installs what can be"
        )
    path = folder / "answers" / f"{tool}.jsonl"
    drop_torn_line(path)
    known = {one.case: one for one in read_answers(folder, tool) if one.version == version}
    missing = [
        case
        for case in cases
        if settings.rerun
        or (one := known.get(case.id)) is None
        or not (settings.fast or one.cpu_s is not None)
    ]
    for case in missing:
        known.pop(case.id, None)
    write_answers(folder, tool, known.values())
    ask = _in_batches if settings.fast and hasattr(asked, "batch") else _one_by_one
    with path.open("a", encoding="utf-8") as out:
        for answer in ask(folder, missing, tool, version, asked, settings):
            known[answer.case] = answer
            out.write(dumps(asdict(answer)) + "\n")
            out.flush()
    order = {case.id: place for place, case in enumerate(cases)}
    write_answers(
        folder, tool, sorted(known.values(), key=lambda a: (order.get(a.case, -1), a.case))
    )
    return len(missing)


def drop_torn_line(path: Path) -> None:
    """Remove the line at the end of a file that a kill has left unfinished."""
    if path.exists() and not (content := path.read_bytes()).endswith(b"\n"):
        path.write_bytes(content[: content.rfind(b"\n") + 1])


def _one_by_one(
    folder: Path, cases: Sequence[Case], tool: str, version: str, asked: Adapter, settings: Settings
) -> Iterator[Answer]:
    """A command for each case, measured."""

    def one(case: Case) -> Answer:
        commands = Commands(settings.environment, settings.limit_s)
        found, error = _attempt(lambda: asked.answer(folder / "cases" / case.id, commands))
        cost = round(commands.cpu_s, 3), round(commands.peak_mib, 1)
        return _answer(case, tool, version, found, error, cost)

    with ThreadPoolExecutor(settings.workers) as pool:
        for future in as_completed([pool.submit(one, case) for case in cases]):
            yield future.result()


def _in_batches(
    folder: Path, cases: Sequence[Case], tool: str, version: str, asked: BatchAdapter,
    settings: Settings,
) -> Iterator[Answer]:  # fmt: skip
    """A process for each worker, which answers every n-th case."""
    answers: Queue[Answer | BaseException | None] = Queue()

    def work(part: Sequence[Case]) -> None:
        try:
            for case, line in _lines(folder, part, asked.batch(), settings.limit_s):
                found, error = _attempt(lambda line=line: _parsed(asked, line))
                answers.put(_answer(case, tool, version, found, error, None))
            answers.put(None)
        except BaseException as error:
            answers.put(error)

    parts = [cases[start :: settings.workers] for start in range(settings.workers)]
    for part in parts:
        threading.Thread(target=work, args=(part,), daemon=True).start()
    for _ in parts:
        while (answer := answers.get()) is not None:
            if isinstance(answer, BaseException):
                raise answer
            yield answer


def _lines(
    folder: Path, cases: Sequence[Case], command: Sequence[str], limit_s: float
) -> Iterator[tuple[Case, str | None]]:
    """What a batch says of each case; None where it died or took too long, then it starts anew."""
    left = list(cases)
    while left:
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            stdin = process.stdin.fileno()  # nothing that is buffered for a process that died
            while left:
                timer = threading.Timer(limit_s, process.kill)
                timer.start()
                try:
                    os.write(stdin, f"{folder / 'cases' / left[0].id}\n".encode())
                    line = process.stdout.readline().decode()
                except BrokenPipeError:
                    line = ""
                finally:
                    timer.cancel()
                yield left.pop(0), line or None
                if not line:
                    process.kill()
                    break


def _parsed(asked: BatchAdapter, line: str | None) -> Found:
    if line is None:
        raise CommandError("the process died or took too long")
    return asked.parse(line)


def _attempt(ask: Callable[[], Found]) -> tuple[Found, str | None]:
    """What a tool says, or why it says nothing: no output of a tool ends the run."""
    try:
        return ask(), None
    except (CommandError, ValueError, LookupError, TypeError) as error:
        return Found(), f"{type(error).__name__}: {error}"


def _answer(
    case: Case, tool: str, version: str, found: Found, error: str | None,
    cost: tuple[float, float] | None,
) -> Answer:  # fmt: skip
    return Answer(
        case.id, tool, version, found.verdict, found.cause, found.confidence, found.ranks,
        found.hosts, found.onset, *(cost or (None, None)), error,
    )  # fmt: skip
