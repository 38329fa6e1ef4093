"""The columns of `Job.timeline`, `Job.progress` and `Job.ranks`: the one definition.

docs/timeline.md is made of it. Each is a field of `timeline.event.Event`; missing is NA.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name, its pandas dtype and what it means."""

    name: str
    dtype: str
    meaning: str


COLUMNS = (
    Column("time", "datetime64[ns]", "when, by the job's clock: wall-clock time as printed"),
    Column("source", "category", "the file, stream or archive member"),
    Column("line", "int64", "number of the line in its source, from 1; 0 where there are no lines"),
    Column("offset", "int64", "byte offset of the line's start in its decompressed source"),
    Column("attempt", "Int16", "which start of the job, from 0"),
    Column("rank", "Int32", "the global rank that wrote the line, or of which it speaks"),
    Column("local_rank", "Int16", "the rank on its node"),
    Column("group_rank", "Int32", "the rank inside a process group"),
    Column("task", "Int32", "the launcher's task, as `srun --label` prints it"),
    Column("host", "category", "the node"),
    Column("pid", "Int64", "the process"),
    Column(
        "kind",
        "category",
        "collective, exit, exception, frame (of a stack), restart, phase, progress, fact, "
        "signature (any other match), edge (first and last lines), place (where a stack is)",
    ),
    Column("signature", "category", "the entry of the catalog that matched"),
    Column("role", "category", "of the entry: cause, effect, aftermath, context, phase, progress"),
    Column("severity", "category", "error, warning or info"),
    Column("cause", "category", "of the entry: the cause class"),
    Column("strength", "category", "of the entry: decisive, strong or weak"),
    Column("signal", "category", "of the entry: what inference learns from it (see the schema)"),
    Column("phase", "category", "of phase markers, progress and frames: init, training, …"),
    Column("group", "category", "the process group"),
    Column("op", "category", "the collective operation"),
    Column("seq", "Int64", "its sequence number"),
    Column("size_in", "Int64", "its elements per rank, input"),
    Column("size_out", "Int64", "its elements per rank, output"),
    Column("timeout_ms", "Int64", "how long it may take, in milliseconds"),
    Column("elapsed_ms", "Int64", "how long it had taken, or a progress bar has run"),
    Column("step", "Int64", "the step that progress counts"),
    Column("text", "str", "the line, at most 1,000 characters"),
    Column("fields", "object", "named captures, a dict of text"),
    Column("ends_phase", "bool", "the line says that its phase is over"),
    Column("repeated", "int64", "how many equal lines Ray folded into this one"),
    Column(
        "learned",
        "category",
        "how the rank became known: line, table, process, communicator, peers, file, host, "
        "local_rank, source, task, node, device, alone, group",
    ),
)  # fmt: skip

# Of Job.progress: some of the above, and who counted.
PROGRESS_COLUMNS = (
    *(one for one in COLUMNS if one.name in ("time", "source", "line", "attempt")),
    Column("author", "str", "who counted: rank 3, the pod or host, or the source"),
    *(one for one in COLUMNS if one.name in ("rank", "host", "signature", "phase", "step", "text")),
)

RANK_COLUMNS = (
    Column("host", "object", "the node"),
    Column("pid", "Int64", "the process"),
    Column("first_time", "datetime64[ns]", "its first line"),
    Column("last_time", "datetime64[ns]", "its last line"),
    Column("last_step", "Int64", "the last step it printed"),
    Column("last_phase", "object", "the last phase it was in"),
    Column("enqueued", "Int64", "the last collective it enqueued, by its status lines"),
    Column("completed", "Int64", "and of the last it completed"),
    Column("exit", "Int64", "exit code, or negative signal"),
    Column("log_present", "bool", "whether it has a line of its own"),
)  # fmt: skip
