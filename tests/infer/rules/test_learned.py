"""What the learned reader suggests of lines that no entry knows, and what it must not."""

from __future__ import annotations

from pathlib import Path

import pytest

import diagnose
from diagnose.infer.rules import learned
from tests.parse.test_ras_several import as_json


def diagnosed(*lines: str) -> diagnose.Diagnosis:
    return diagnose.diagnose(diagnose.load_text("\n".join(lines) + "\n"))


def test_words_of_an_unknown_error_suggest_a_class_at_low_confidence() -> None:
    line = "ERROR: 7 cells on each side are not divisible by the tiles that you ask for"
    found = diagnosed("step 3 loss 2.0", line)
    cause = found.root_cause
    assert (found.verdict, cause.cause, cause.confidence) == ("unknown", "env.config", "low")
    assert found.to_dict()["root_cause"]["suggested"] is True
    assert "which is a guess" in cause.summary
    assert found.culprits.ranks == []
    proposed = [reason for reason in found.reasons if reason.rule == "learned"]
    assert [reason.subject for reason in proposed] == ["env.config"]
    assert "divisible" in proposed[0].text


def test_what_suggests_nothing_stays_unknown() -> None:
    found = diagnosed("step 3 loss 2.0", "ERROR: 42")
    assert (found.verdict, found.root_cause.cause) == ("unknown", "unknown")
    assert not found.root_cause.suggested


def test_a_job_that_went_on_is_not_read() -> None:
    found = diagnosed(*(f"step {n} loss 2.0" for n in range(1, 20)))
    assert (found.verdict, found.root_cause.cause) == ("running", "none")


def test_an_end_of_unknown_kind_gets_the_kind_that_its_words_suggest() -> None:
    found = diagnosed(
        "--> FOAM FATAL ERROR:",
        "number of processors 7 does not divide the grid 64 x 64",
    )
    assert (found.verdict, found.root_cause.cause) == ("failed", "env.config")
    assert (found.root_cause.confidence, found.root_cause.suggested) == ("low", True)


def test_a_message_that_is_broken_over_two_lines_is_read_as_one() -> None:
    texts = diagnose.load_text("a parameter given to a command line\ndoes not match the format\n")
    events = [event for event in texts.events if event.kind == "edge"]
    read = [text for text, _ in learned._texts(events)]
    assert "a parameter given to a command line does not match the format" in read


@pytest.mark.parametrize(
    ("line", "telling"),
    [
        ("Main process received the result, exits successfully.", False),
        ("Main process received the result, exits unsuccessfully.", True),
        ("the job has ended, exit code 0", False),
        ("the job has ended, exit code: 1", True),
        ("ERROR: 42", False),
        ("checkpoint completed, but an error was raised by the writer", True),
        ("    0x7f1e692ecdb4 (/usr/lib/x86_64-linux-gnu/libstdc++.so.6.0.33)", False),
        ("    <module> (/opt/venv/lib/torch/distributed/run.py:994)", False),
        ("0x7f1e692ecdb4 is no address of libstdc++.so.6", True),
    ],
)
def test_frames_and_good_ends_are_not_read(line: str, telling: bool) -> None:
    assert learned.may_tell(line) == telling


def test_a_line_of_which_the_catalog_says_what_it_does_not_prove_is_not_read() -> None:
    found = diagnosed(
        "Some weights of BertForSequenceClassification were not initialized from the model "
        "checkpoint at bert-base-uncased and are newly initialized: ['classifier.bias']",
        "Traceback (most recent call last):",
        '  File "/app/t.py", line 10, in <module>',
        "SystemExit: 3",
    )
    assert found.root_cause.cause == "unknown"


def test_that_a_child_failed_suggests_nothing() -> None:
    found = diagnosed(
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
        "  exitcode  : -6 (pid: 592)",
    )
    assert found.root_cause.cause == "unknown"


def test_a_kind_that_is_not_sure_is_a_rival_and_lowers_the_confidence() -> None:
    found = diagnosed(
        "[rank1]: Traceback (most recent call last):",
        '[rank1]:   File "/app/train.py", line 12, in main',
        "[rank1]:     read(path)",
        "[rank1]: RuntimeError: the state of the optimizer has another layout",
    )
    assert (found.root_cause.cause, found.root_cause.confidence) == ("crash.exception", "low")
    assert found.culprits.ranks == [1]
    assert [reason.rule for reason in found.reasons if reason.step == "rival"] == ["learned"]


@pytest.mark.parametrize(
    "line",
    ["GPU memory 80 GB", "Time limit 24:00:00", "timeout: 600 s", "HOSTNAME=node07",
     "binding to interface eth0", "loading configuration from run.yaml"],
)  # fmt: skip
def test_a_start_without_trouble_gets_no_title(line: str) -> None:
    found = diagnosed("starting", line)
    assert (found.verdict, found.root_cause.cause) == ("unknown", "unknown")


def test_a_line_with_a_word_of_failure_is_read_without_other_trouble() -> None:
    line = "A parameter of a command line option does not match the expected format"
    found = diagnosed("$ mpirun -np $N app", line)
    assert (found.verdict, found.root_cause.cause) == ("unknown", "env.config")
    assert found.root_cause.title.startswith("A guess: ")
    assert found.root_cause.suggested


@pytest.mark.parametrize(
    "raised", ["NameError: name 'disk_quota' is not defined", "KeyError: 'disk_quota_exceeded'"]
)
def test_a_fault_of_the_code_is_none_of_what_it_names(raised: str) -> None:
    found = diagnosed(
        "[rank1]: Traceback (most recent call last):",
        '[rank1]:   File "/app/train.py", line 12, in main',
        "[rank1]:     save(state)",
        f"[rank1]: {raised}",
    )
    assert found.root_cause.cause == "crash.exception"


def test_settings_are_not_what_fails_after_steps() -> None:
    steps = [f"[rank1]: step {n}/100 loss 2.0" for n in range(1, 6)]
    raised = [
        "[rank1]: Traceback (most recent call last):",
        '[rank1]:   File "/app/train.py", line 12, in main',
        "[rank1]:     step()",
        "[rank1]: RuntimeError: grid 64 does not split among 7 tiles",
    ]
    before, after = diagnosed(*raised), diagnosed(*steps, *raised)
    assert [reason.subject for reason in before.reasons if reason.step == "rival"] == ["env.config"]
    assert [reason for reason in after.reasons if reason.step == "rival"] == []
    assert (before.root_cause.confidence, after.root_cause.confidence) == ("low", "medium")


def test_two_lines_that_are_read_alike_are_witnesses_of_each_other() -> None:
    quota = "writing the restart file: the disk quota of the project is used up"
    space = "snapshot not written, there is no free disk space left for it"
    aborted = "*** An error occurred in MPI_Init"
    alone = diagnosed("step one", quota, "a line between", aborted).root_cause
    both = diagnosed("step one", quota, "a line between", space, "and more", aborted).root_cause
    assert (alone.cause, alone.confidence) == ("env.storage", "low")
    assert (both.cause, both.confidence) == ("env.storage", "medium")


def test_a_report_about_processes_has_no_last_words(tmp_path: Path) -> None:
    """Its line `"cuda_driver_version": 13000` is read as one about versions."""
    report = Path(__file__).parents[3] / "fixtures/gpu-ras-unresponsive/ncclras-1.json"
    (tmp_path / "ncclras-1.json").write_bytes(report.read_bytes())
    job = diagnose.load(tmp_path)
    assert [event for event in job.events if event.kind == "edge"] == []


def test_a_guess_takes_back_no_hang(tmp_path: Path) -> None:
    """No counter of NCCL moved between the two reports."""
    refused = "ERROR: 7 cells on each side are not divisible by the tiles that you ask for"
    (tmp_path / "rank0.log").write_text(f"step 3 loss 2.0\n{refused}\n")
    for number, second in enumerate((35, 45), 1):
        (tmp_path / f"ncclras-{number}.json").write_text(as_json(second, [17] * 4))
    found = diagnose.diagnose(diagnose.load(tmp_path))
    assert (found.verdict, found.root_cause.cause) == ("hung", "env.config")
    assert found.root_cause.confidence == "low"


@pytest.mark.parametrize(
    ("raised", "level"),
    [
        (["RuntimeError: out of order"], "low"),
        (["KeyError: 'text'"], "medium"),
        (
            [
                "Traceback (most recent call last):",
                '  File "/home/user/train.py", line 44, in train',
                "    step(batch)",
                "RuntimeError: out of order",
            ],
            "medium",
        ),
    ],
    ids=["form-alone", "fault-of-code", "in-own-code"],
)
def test_the_form_of_an_end_alone_is_a_weak_witness(raised: list[str], level: str) -> None:
    cause = diagnosed("step 3 loss 2.0", *raised).root_cause
    assert (cause.cause, cause.confidence) == ("crash.exception", level)


def test_advice_that_is_logged_as_information_is_not_read() -> None:
    advice = (
        "INFO 10-07 10:35:24 model_runner.py:1387] CUDA graphs can take additional 1~3 GiB memory "
        "per GPU. If you are running out of memory, consider decreasing `gpu_memory_utilization`."
    )
    texts = diagnose.load_text(f"{advice}\n{advice.replace('INFO', 'ERROR')}\n")
    events = [event for event in texts.events if event.kind == "edge"]
    read = {event.line for _, event in learned._texts(events)}
    assert read == {2}


def test_warnings_of_code_that_will_change_are_not_read() -> None:
    texts = diagnose.load_text(
        "/opt/lib/pkg_resources/__init__.py:2870: DeprecationWarning: Deprecated call to "
        "`pkg_resources.declare_namespace('google')`.\n"
        "Implementing implicit namespace packages (as specified in PEP 420) is preferred\n"
        "a parameter given to a command line does not match the format\n"
    )
    events = [event for event in texts.events if event.kind == "edge"]
    assert [text for text, _ in learned._texts(events)] == [
        "a parameter given to a command line does not match the format"
    ]


def test_where_words_of_an_exception_are_guessed_at_its_line_comes_first() -> None:
    found = diagnosed(
        "step 3 loss 2.0",
        "[rank2]: Traceback (most recent call last):",
        '[rank2]:   File "/w/train.py", line 6, in work',
        '[rank2]:     raise RuntimeError("corrupt shard 17")',
        "[rank2]: RuntimeError: corrupt shard 17",
    )
    assert (found.root_cause.suggested, found.culprits.ranks) == (True, [2])
    first = found.remedies[0]
    assert first.do == "Start at /w/train.py:6, the line of your code that raised it."
