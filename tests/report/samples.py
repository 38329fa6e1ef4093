"""Hand-made diagnoses, one for each kind of verdict, and one made of hostile text."""

from diagnose.catalog.schema import Run
from diagnose.diagnosis import (
    Alternative,
    ChainLink,
    CodeFrame,
    Collective,
    Culprits,
    Diagnosis,
    Evidence,
    JobFacts,
    MissingEvidence,
    Onset,
    PythonException,
    Reason,
    RemedyStep,
    RestartAdvice,
    RootCause,
    SourceLine,
)

HUNG = Diagnosis(
    verdict="hung",
    root_cause=RootCause(
        cause="data.preparation",
        signature="tqdm.bar.preparation",
        title="Rank 0 was still tokenising the data set while ranks 1-7 waited for it",
        summary="Ranks 1-7 waited 30 minutes in a barrier until their watchdogs fired; the "
        "progress bar of rank 0 stood at 9 % with four more hours to go",
        confidence="high",
    ),
    culprits=Culprits(
        ranks=[0], hosts=["gpu-a"], kind="slow", why="Its progress bar moved until the end"
    ),
    phase="preprocessing",
    onset=Onset("2025-03-08T08:18:22.101234", "1,800,371 ms before the first watchdog line"),
    collective=Collective("default_pg", "ALLREDUCE", 2, joined=[1, 2, 3, 4, 5, 6, 7], missing=[0]),
    longer_timeout_helps="yes",
    causal_chain=[
        ChainLink("Rank 2's watchdog gave up", "2025-03-08T08:48:22.472", 2, "rank2.log", 17),
        ChainLink("Tokenising began", "2025-03-08T08:18:20.5", 0, "rank0.log", 4),
        ChainLink("The progress bar stood at 9 %", None, 0, "rank0.log", 212),
        ChainLink("The launcher stopped the job", "2025-03-08T08:49:01", None, "rank2.log", 31),
    ],
    evidence=[
        Evidence(
            "rank0.log",
            212,
            "Running tokenizer on dataset:   9%|███▊        | 280000/2969526 [29:55<4:48:08, "
            "155.57 examples/s]",
            "The bar ran as long as the timeout is",
        ),
        Evidence(
            "rank2.log",
            17,
            "[rank2]:[E ProcessGroupNCCL.cpp:607] [Rank 2] Watchdog caught collective operation "
            "timeout: WorkNCCL(SeqNum=2, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
            "Timeout(ms)=1800000) ran for 1800371 milliseconds before timing out.",
            "Waited for a collective of one element, that is, a barrier",
        ),
    ],
    alternatives=[
        Alternative("net.socket", "low", "The ranks had finished collective 1 over the same path"),
        Alternative("desync.missing_rank", "low", "The log says what rank 0 was doing"),
    ],
    remedies=[
        RemedyStep(
            "now",
            "Tokenise once on one process, then start training from the saved data set",
            "No rank waits then, and the work is not lost at the next failure",
            [
                Run("shell", ["llamafactory-cli train config.yaml tokenized_path=/data/tokenized"]),
                Run("note", ["any number of processes can read it"], "llama-factory"),
            ],
        ),
        RemedyStep(
            "fix",
            "Raise the timeout to six hours",
            "",
            [
                Run("setting", ["ddp_timeout: 21600"], "llama-factory", "config.yaml"),
                Run("python", ["from datetime import timedelta", "timedelta(hours=6)"]),
            ],
        ),
        RemedyStep(
            "fix",
            "Use more workers for preprocessing",
            "155 examples per second is one core",
            [Run("setting", ["preprocessing_num_workers: 16"])],
        ),
        RemedyStep("prevent", "Keep the tokenised data set beside the raw one"),
    ],
    restart=RestartAdvice("fix_first", [], "The same job would time out again"),
    missing_evidence=[
        MissingEvidence("The log of rank 5", "start with torchrun --redirects 3 --log-dir logs")
    ],
    job=JobFacts(
        world_size=8,
        hosts=["gpu-a"],
        attempts=2,
        frameworks=["llama-factory", "deepspeed"],
        versions={"deepspeed": "0.14.4", "torch": "2.3.1"},
        ranks_seen=[0, 1, 2, 3, 4, 6, 7],
    ),
)

FAILED = Diagnosis(
    verdict="failed",
    root_cause=RootCause(
        "hw.gpu", "A GPU fell off the bus", "Xid 79 on gpu07", "medium", "gpu.xid.79"
    ),
    culprits=Culprits(hosts=["gpu07"], kind="crashed"),
    restart=RestartAdvice("retry_elsewhere", ["gpu07"], ""),
    longer_timeout_helps="no",
    evidence=[
        Evidence("dmesg/gpu07.txt", 3, "NVRM: Xid (PCI:0000:5d:00): 79, pid=1, GPU has …", "")
    ],
    remedies=[
        RemedyStep(
            "now",
            "Drain the host",
            "",
            [Run("shell", ["scontrol update nodename=gpu07 state=drain reason=gpu"], "slurm")],
            "changes_state",
            "admin",
        ),
    ],
)

_OWN = CodeFrame("/job/data.py", 77, "__iter__", own=True, code='yield row["text"]')
RAISED = Diagnosis(
    verdict="failed",
    root_cause=RootCause(
        "crash.exception",
        "A Python exception ended a rank",
        "KeyError: 'text' in data.py:77 (__iter__), rank 6",
        "medium",
        "python.exception.any",
    ),
    culprits=Culprits([6], [], "crashed", "it printed the error"),
    exception=PythonException(
        "KeyError",
        "'text'",
        6,
        _OWN,
        [
            CodeFrame("/job/train.py", 210, "<module>", own=True, code="main()"),
            CodeFrame("/opt/lib/python3/site-packages/torch/a.py", 5, "f", own=False, code="g()"),
            CodeFrame("/opt/lib/python3/site-packages/torch/b.py", 6, "g", own=False),
            _OWN,
        ],
        "train.log",
        4,
        13,
    ),
    restart=RestartAdvice("fix_first"),
    longer_timeout_helps="no",
)

HEALTHY = Diagnosis(
    verdict="healthy",
    root_cause=RootCause(
        "none",
        "No failure found",
        "All 4 ranks reached the end of training",
        "high",
    ),
    phase="shutdown",
    onset=Onset(None, "No failure in the log."),
    job=JobFacts(world_size=4, ranks_seen=[0, 1, 2, 3], versions={"torch": "2.13.0"}),
)

UNKNOWN = Diagnosis(
    verdict="unknown",
    root_cause=RootCause(
        "unknown",
        "The evidence does not tell why the job stopped",
        "Every line seen is aftermath: the ranks lost their connection to one that is not here",
        "low",
    ),
    alternatives=[Alternative("net.fabric", "low", "No line of the fabric itself")],
    missing_evidence=[
        MissingEvidence("The logs of the other ranks", "torchrun --redirects 3 --log-dir logs"),
        MissingEvidence("Where each rank is", "TORCH_FR_BUFFER_SIZE=2000 in the environment"),
    ],
    job=JobFacts(world_size=16, ranks_seen=[3]),
)

HOSTILE = Diagnosis(
    verdict="failed",
    root_cause=RootCause(
        "crash.exception",
        "[bold]ValueError[/bold]: \x1b[2J\x1b]0;owned\x07<script>alert(1)</script>",
        "- a list? @everyone see #1\u202e\u2066gnp.exe\x00 | `tick` | $(reboot) &lt;b&gt;",
        "low",
    ),
    culprits=Culprits(ranks=list(range(0, 64, 2)), hosts=["[red]a[/red]\nb"] * 30),
    evidence=[
        Evidence(
            "a ]`[ b.log",
            1,
            "```\n</details> [link](javascript:x) \x9b31mred\x1b[0m "
            "HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz " + "x" * 5000,
            "why [/] not",
        )
    ],
    remedies=[RemedyStep("now", "Run", "", [Run("shell", ["first line ```", "second\nline"])])],
    reasons=[
        Reason(
            "verdict",
            "won",
            "crash.exception",
            "highest_ranked",
            "[bold]x[/bold] | `y` | </details> HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz",
            "signatures",
            "python.exception.any",
            None,
            "strong",
            [SourceLine("a | `[ b.log", 1)],
            1,
        ),
        Reason(
            "rival",
            "lost",
            "net.socket",
            "explained",
            "a consequence of crash.exception",
            "signatures",
            "[red]x" * 30,
            "crash.exception",
            "weak",
            [],
            0,
        ),
        Reason(
            "event",
            "absolved",
            "<script>" * 20,
            "worked_on",
            "\x1b[2J\u202e" + "x" * 300,
            places=[SourceLine("b\n.log", 7), SourceLine("b\n.log", 9)],
            count=12_000,
        ),
    ],
)

ALL = {
    "hung": HUNG,
    "failed": FAILED,
    "raised": RAISED,
    "healthy": HEALTHY,
    "unknown": UNKNOWN,
    "hostile": HOSTILE,
}
