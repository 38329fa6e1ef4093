"""The tools as an agent sees them: names, descriptions, arguments. Their answers are elsewhere."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from threading import BoundedSemaphore
from typing import Annotated

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult, TextContent, ToolAnnotations
from pydantic import Field

from diagnose.catalog.load import load_catalog
from diagnose.errors import DiagnoseError
from diagnose.mcp import lookup_tools
from diagnose.mcp.answer import NAMES_ARE_DATA, Answer, data_of, text_of
from diagnose.mcp.job_tools import compare, issue, lines, timeline, triage, waits
from diagnose.mcp.jobs import Jobs, Root
from diagnose.mcp.lookup_tools import checkpoint, fleet
from diagnose.report.safe import masked_line, scrubber
from diagnose.runtime.command import cores

JobName = Annotated[
    str, Field(description="The job: its path below the root folder, or the `paste-…` of a triage.")
]
_MAX_ERROR = 1000  # characters
_READS = ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)


class Toolbox:
    """The tools over one root folder. Their docstrings are what the agent reads of them."""

    def __init__(self, root: Root, *, redact: bool, patterns: Sequence[Path]) -> None:
        self._root = root
        self._jobs = Jobs(root, redact=redact, patterns=patterns)
        self._scrub = partial(scrubber, redact=redact)
        self._turns = BoundedSemaphore(max(2, cores()))  # of jobs that are read at once

    def add_to(self, server: MCPServer) -> None:
        """Offer all of them on a server."""
        for tool, title in (
            (self.triage, "Diagnose a hung or failed job"),
            (self.lines, "Log lines around a line"),
            (self.timeline, "Timeline of a rank"),
            (self.waits, "Who waits for whom"),
            (self.issue_text, "An issue for a project's maintainers"),
            (self.compare, "Compare a bad run with a good one"),
            (self.explain, "Explain a cause or setting"),
            (self.match_line, "Look up a log line"),
            (self.checkpoint, "Check checkpoints"),
            (self.fleet, "What fails most in scanned jobs"),
        ):
            server.add_tool(tool, title=title, annotations=_READS)

    def triage(
        self,
        path: Annotated[
            str, Field(description="Log file, archive, or folder with all logs and dumps of a job.")
        ] = "",
        text: Annotated[
            str, Field(description="Pasted log text instead of a path, as it was printed.")
        ] = "",
        why: Annotated[
            bool, Field(description="Answer with how the verdict came about instead of what to do.")
        ] = False,
    ) -> CallToolResult:
        """Diagnose why a distributed training job hung or died.

        Give everything there is: the folder with the logs of all ranks, the launcher, the hosts'
        kernel logs, Flight Recorder dumps, stacks. Answers with verdict, root cause, ranks and
        hosts to blame, onset, evidence by file and line, remedies, restart advice, and how sure
        that is. Rather than reading the logs yourself, call this first.
        """

        def answer() -> Answer:
            if bool(path) == bool(text):
                raise DiagnoseError("give either `path` or `text`")
            opened = self._jobs.of_path(path) if path else self._jobs.of_text(text)
            return triage(opened, why=why)

        return self._result(answer)

    def lines(
        self,
        job: JobName,
        line: Annotated[int, Field(description="Line number, from 1.", ge=1)],
        source: Annotated[
            str, Field(description="Log of the job, as evidence and timeline name it.")
        ] = "",
        before: Annotated[int, Field(description="Lines before it, up to 100.", ge=0)] = 15,
        after: Annotated[int, Field(description="Lines after it, up to 100.", ge=0)] = 15,
    ) -> CallToolResult:
        """Show the log around a line that triage or timeline named, secrets masked."""
        return self._result(lambda: lines(self._jobs.get(job), source, line, before, after))

    def timeline(
        self,
        job: JobName,
        rank: Annotated[
            int | None, Field(description="Global rank; left out: the whole job.")
        ] = None,
        offset: Annotated[int, Field(description="First row, to go on behind an answer.")] = 0,
    ) -> CallToolResult:
        """Show what one rank, or the whole job, did in time order, as far as the catalog knows it.

        Compare a culprit with a rank that waited: what did it do last before the onset?
        """
        return self._result(lambda: timeline(self._jobs.get(job), rank, offset))

    def waits(self, job: JobName) -> CallToolResult:
        """Show which ranks wait for which, in which collective, and where their stacks are."""
        return self._result(lambda: waits(self._jobs.get(job)))

    def issue_text(
        self,
        job: JobName,
        project: Annotated[
            str, Field(description="nccl, pytorch, vllm, sglang, verl, deepspeed, ray or slurm.")
        ],
    ) -> CallToolResult:
        """Write the job as an issue for a project: what maintainers ask for, and what is missing.

        Masked. Before it is posted a person has to read it, and answer what is left open.
        """
        return self._result(lambda: issue(self._jobs.get(job), project))

    def compare(
        self,
        good: Annotated[str, Field(description="A run that ended well, as `path` of triage.")],
        bad: Annotated[str, Field(description="The run that did not, as `path` of triage.")],
    ) -> CallToolResult:
        """Show what a bad run differs in from a good one of the same job, most telling first.

        Versions, environment, arguments, nodes, collectives, new lines, step times. A difference is
        a lead and no cause: check it against the verdict.
        """
        return self._result(lambda: compare(self._jobs.get(good), self._jobs.get(bad)))

    def explain(
        self,
        name: Annotated[
            str, Field(description="Cause class (net.fabric), setting (timeout) or signature id.")
        ],
    ) -> CallToolResult:
        """Explain a cause class, a setting of all frameworks, or an entry of the catalog."""
        return self._result(lambda: lookup_tools.explain(load_catalog(self._jobs.patterns), name))

    def match_line(
        self, text: Annotated[str, Field(description="A line of a log, or up to 20.")]
    ) -> CallToolResult:
        """Look up which known failures match a log line, or what its words suggest."""
        return self._result(lambda: lookup_tools.match_line(self._jobs, text, self._scrub()))

    def checkpoint(
        self,
        path: Annotated[str, Field(description="Checkpoint, or folder with checkpoints.")],
        verify: Annotated[
            bool, Field(description="Read every byte and verify stored checksums (slow).")
        ] = False,
    ) -> CallToolResult:
        """Check which checkpoints are intact, what is wrong with others, and how to resume."""
        return self._result(lambda: checkpoint(self._root, path, self._scrub(), verify=verify))

    def fleet(
        self,
        path: Annotated[str, Field(description="Results folder of `diagnose scan`.")],
        by: Annotated[
            str, Field(description="Group by cause, host, week, or a label of the jobs.")
        ] = "cause",
    ) -> CallToolResult:
        """Show what fails most in many scanned jobs, what recurs, and which nodes stand out.

        Ask it whether a failure was seen before, and on which hosts.
        """
        catalog = load_catalog(self._jobs.patterns)
        return self._result(lambda: fleet(self._root, path, by, catalog, self._scrub()))

    def _result(self, make: Callable[[], Answer]) -> CallToolResult:
        """What goes to the client; an error that says what to do where there is no answer."""
        try:
            with self._turns:
                answer = make()
        except DiagnoseError as error:
            message = str(error).replace(f"{self._root.folder}{os.sep}", "")  # as it is named here
            raise ToolError(f"{masked_line(message, _MAX_ERROR)}\n{NAMES_ARE_DATA}") from error
        return CallToolResult(
            content=[TextContent(type="text", text=text_of(answer))],
            structured_content=data_of(answer),
        )
