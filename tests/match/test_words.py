"""Words of the vocabularies in lines."""

from __future__ import annotations

import pytest

import diagnose
from diagnose.catalog.entries import entry_of
from diagnose.catalog.load import load_catalog
from diagnose.catalog.schema import Near, Vocabulary, Word
from diagnose.match.words import Words

REFUSED = Word(
    ["ECONNREFUSED", "Connection refused"], "net.socket", "medium",
    near=[Near("NFS", "slow.storage", "strong"), Near("peer", "unknown", "weak", "aftermath")],
)  # fmt: skip
FAULT = Word(["bus error"], "crash.native", "strong")
LONG = Word(["bus error in shared memory"], "net.shm", "medium")
FINE = Word(["EOK"], "none", "weak")
TROUBLE = Word(["ESTRANGE"], "unknown", "medium")
ERRNO = Vocabulary("errno", "", [], [REFUSED, FAULT, LONG, FINE, TROUBLE])
XID = Vocabulary(
    "xid", "", [], [Word(["79"], "hw.gpu", "strong")], r"Xid[ :]+(?P<word>\d+)", ["Xid"]
)
WORDS = Words([ERRNO, XID])


def found(line: str, *, raised: bool = False) -> tuple[str, str, str] | None:
    meant = WORDS.find(line, raised=raised)
    return (meant.id, meant.cause, meant.strength) if meant else None


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("connect: Connection refused", ("word.errno.econnrefused", "net.socket", "medium")),
        ("errno ECONNREFUSED (111)", ("word.errno.econnrefused", "net.socket", "medium")),
        ("NFS server: Connection refused", ("word.errno.econnrefused.1", "slow.storage", "strong")),
        ("peer: Connection refused", ("word.errno.econnrefused.2", "unknown", "weak")),
        ("XECONNREFUSED_TOO", None),
        ("connection REFUSED", None),
        ("all is EOK", None),
        ("ESTRANGE things", ("word.errno.estrange", "unknown", "medium")),
        ("Xid: 79, gone", ("word.xid.79", "hw.gpu", "strong")),
        ("Xid: 99", None),
        ("line 79 of the table", None),
    ],
)
def test_a_word_means_what_its_line_says(line: str, expected: object) -> None:
    assert found(line) == expected


def test_the_surest_word_that_names_a_cause_is_told() -> None:
    assert found("ESTRANGE: Connection refused") == (
        "word.errno.econnrefused", "net.socket", "medium",
    )  # fmt: skip
    assert found("Connection refused, bus error")[1] == "crash.native"  # type: ignore[index]


def test_who_goes_on_says_less() -> None:
    assert found("Connection refused, retrying in 5 s") == (
        "word.errno.econnrefused.handled", "net.socket", "weak",
    )  # fmt: skip
    assert found("gpu1:42:57 [1] NCCL INFO a library's bus error") == (
        "word.errno.bus-error.handled", "crash.native", "weak",
    )  # fmt: skip
    assert found("io/image.py:13: UserWarning: no image extension: ESTRANGE") == (
        "word.errno.estrange.handled", "unknown", "weak",
    )  # fmt: skip
    warned = found("WARNING: ESTRANGE")  # a level says less about what comes of it
    assert warned == ("word.errno.estrange", "unknown", "medium")
    told = "TUNER/Plugin: Plugin load returned 2 : libx.so: ESTRANGE : when loading libx.so"
    assert found(told) is None


@pytest.mark.parametrize(
    "line",
    [
        "    raise ValueError(",
        "[rank0]:     raise OSError(28)",
        "1: frame #0: c10::Error::Error(ESTRANGE) + 0xbc (0x7f00 in libc10.so)",
    ],
)
def test_a_line_of_code_says_nothing(line: str) -> None:
    assert found(line, raised=True) is None


def test_an_id_leads_back_to_its_entry() -> None:
    catalog = load_catalog()
    words = Words(catalog.vocabularies)
    lines = [
        "OSError: [Errno 98] Address already in use", "connect: No route to host",
        "rpc failed: StatusCode.UNAVAILABLE", "mount: Stale file handle, retrying",
    ]  # fmt: skip
    for line in lines:
        for raised in (False, True):
            meant = words.find(line, raised=raised)
            assert meant is not None
            entry = entry_of(catalog, meant.id)
            assert entry == meant.entry()
            assert entry is not None
            assert entry.cause in ("", *catalog.classes)


@pytest.mark.parametrize("prefix", ["", "[rank3]: ", "[1,1]<stderr>:", "[pod/w-0/pytorch] "])
def test_a_line_of_the_program_is_no_message(prefix: str) -> None:
    assert found(f'{prefix}    raise JSONDecodeError("Expecting value", text, 0)') is None


def told(*lines: str) -> diagnose.Diagnosis:
    return diagnose.diagnose(diagnose.load_text("\n".join(lines) + "\n"))


def test_a_word_names_the_cause_that_no_signature_knows() -> None:
    result = told("loading shard 3", "frobnicate: dial tcp 10.0.0.7:99: no route to host")
    assert (result.verdict, result.root_cause.cause) == ("failed", "net.socket")
    assert result.root_cause.confidence != "high"


def test_a_word_says_what_an_exception_is_about() -> None:
    result = told(
        "Traceback (most recent call last):",
        '  File "train.py", line 3, in <module>',
        "acme.errors.SaveError: could not write: No space left on device",
    )
    assert result.root_cause.cause != "crash.exception"


def test_words_far_above_the_end_of_a_log_are_no_failure() -> None:
    quiet = [f"message number {n} of the daemon" for n in range(60)]
    result = told("frobnicate: no route to host", *quiet)
    assert result.verdict == "unknown"


def test_the_shipped_words_are_no_false_friends_of_progress() -> None:
    result = told("step 1 loss 2.1", "cache: Connection refused, falling back", "step 2 loss 2.0")
    assert result.verdict == "running"


def test_a_line_made_to_hurt_has_no_code_and_nothing_beside_a_word() -> None:
    hurtful = r"(?:a|aa)+[^a]c"
    code = Vocabulary(
        "c", "", [], [Word(["1"], "hw.gpu", "strong")], rf"(?P<word>{hurtful})", ["a"]
    )
    beside = Word(["bus error"], "crash.native", "strong", near=[Near(hurtful, "net.shm")])
    words = Words([code, Vocabulary("w", "", [], [beside])])
    meant = words.find("bus error " + "a" * 40 + "b")
    assert meant is not None
    assert (meant.id, meant.cause) == ("word.w.bus-error", "crash.native")
