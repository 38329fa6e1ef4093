"""Lines like an example of the catalog."""

from __future__ import annotations

import math

import diagnose
from diagnose.catalog.load import load_catalog
from diagnose.infer.rules import leads


def told(*lines: str) -> diagnose.Diagnosis:
    return diagnose.diagnose(diagnose.load_text("\n".join(lines) + "\n"))


def test_other_words_for_the_same_are_a_lead_of_low_confidence() -> None:
    result = told(
        "step 3 loss 2.0",
        "ERROR: Detected mismatch between collectives on ranks, this rank is running another "
        "collective op type",
    )
    assert result.root_cause.confidence == "low"
    assert (result.verdict, result.root_cause.cause) == ("unknown", "desync.mismatch")
    assert "resembles gloo.fingerprint.mismatch" in result.root_cause.summary
    assert result.culprits.ranks == []


def test_that_a_child_failed_is_like_nothing_but_itself() -> None:
    result = told(
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
        "  exitcode  : -6 (pid: 592)",
    )
    assert result.root_cause.cause == "unknown"


def test_what_is_like_nothing_stays_unknown() -> None:
    result = told("step 3 loss 2.0", "ERROR: the quick brown fox jumps over the lazy dog")
    assert result.root_cause.cause == "unknown"
    assert "resembles" not in result.root_cause.summary


def test_a_line_of_which_the_catalog_says_what_it_does_not_prove_is_like_nothing() -> None:
    result = told(
        "Some weights of BertForSequenceClassification were not initialized from the model "
        "checkpoint at bert-base-uncased and are newly initialized: ['classifier.bias']",
        "Traceback (most recent call last):",
        '  File "/app/t.py", line 10, in <module>',
        "SystemExit: 3",
    )
    assert result.root_cause.cause == "unknown"
    assert "resembles" not in result.root_cause.summary


def test_what_went_well_is_like_no_failure() -> None:
    words = "[INFO] [launch.py:340:sigterm_handler] Main process received the result, exits"
    like = [leads._may_tell(f"{words} {how}") for how in ("successfully.", "unsuccessfully.")]
    assert like == [False, True]
    assert [leads._may_tell(f"job ended, exit code{c}") for c in (" 0", "=0", ": 1")] == [
        False, False, True,
    ]  # fmt: skip
    assert leads._may_tell("checkpoint completed, but an error was raised by the writer")


def test_weights_do_not_depend_on_the_order_of_words() -> None:
    """Else which of two lines that are as like an example is told changes with the hash seed."""
    known, weights = leads._index(load_catalog())
    for one in known:
        assert one.weight == math.fsum(sorted(weights[word] for word in one.words))


def test_a_native_frame_is_like_nothing() -> None:
    line = "    0x7f1e692ecdb4 (/usr/lib/x86_64-linux-gnu/libstdc++.so.6.0.33)"
    assert leads._FRAME.match(line)
    assert leads._FRAME.match("    <module> (/opt/venv/lib/torch/distributed/run.py:994)")
    assert not leads._FRAME.match("0x7f1e692ecdb4 is no address of libstdc++.so.6")


def test_a_line_that_an_entry_knows_is_like_no_other() -> None:
    thrown = "[1] terminate called after throwing an instance of 'c10::Error'"
    result = told("[1] About to start", thrown)
    assert (result.verdict, result.root_cause.cause) == ("failed", "unknown")
    assert "resembles" not in result.root_cause.summary


def test_where_a_line_was_printed_is_like_no_other() -> None:
    site = "[FUNC:FuncErrorReason][FILE:error_message_manage.cc][LINE:53]"
    assert leads._words(f"rtDeviceSynchronize failed at NPUStream.cpp:423 {site}") == {
        "rtdevicesynchronize",
        "failed",
    }
