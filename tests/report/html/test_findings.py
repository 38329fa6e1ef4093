import pytest

import diagnose
from diagnose.diagnosis import Diagnosis
from diagnose.report.html.clock import prepare
from diagnose.report.html.tables import Findings, _shapes, _variants, findings
from diagnose.report.safe import scrubber
from diagnose.timeline.event import Event, Meaning, Timeline

from .jobs import fixture, watchdog


def fold(job: diagnose.Job, diagnosis: Diagnosis | None = None) -> Findings:
    onset = diagnosis.onset.time if diagnosis else None
    return findings(prepare(job, onset), job.catalog, scrubber(redact=True))


def test_the_same_message_of_many_ranks_is_one_variant() -> None:
    log = "\n".join(
        [watchdog(rank) for rank in range(1, 128)] + [watchdog(0, seq=6, op="BROADCAST")]
    )
    found = fold(diagnose.load_text(log))
    [timeout] = [item for item in found.items if item.signature == "torch.c10d.watchdog-timeout"]
    assert timeout.who == "ranks 0-127"
    assert timeout.count == 128
    assert [(v.who, v.count, v.place) for v in timeout.variants] == [
        ("ranks 1-127", 127, "<paste>:1"),
        ("rank 0", 1, "<paste>:128"),
    ]
    assert "OpType=BROADCAST" in timeout.variants[1].text


def test_only_digits_that_tell_something_keep_lines_apart() -> None:
    log = "\n".join([watchdog(0, "08:25:12"), watchdog(1, "08:25:13"), watchdog(2, seq=8)])
    [timeout] = [i for i in fold(diagnose.load_text(log)).items if "timeout" in i.signature]
    assert [variant.who for variant in timeout.variants] == ["ranks 0-1", "rank 2"]


def test_many_wordings_are_counted_but_not_all_kept() -> None:
    words = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa"]
    log = "\n".join(f"[rank0]: ValueError: {word} is wrong" for word in words)
    job = diagnose.load_text(log)
    found = fold(job)
    [error] = [item for item in found.items if item.signature == "python.exception.any"]
    assert (len(error.variants), error.more, error.count) == (8, 2, 10)
    number = int(error.anchor.split("-")[1]) - 1
    places = [found.of(event.signature or "", event.index) for event in job.events]
    variants = [variant for finding, variant in places if finding == number]
    assert sorted(variants) == [-1, -1, 0, 1, 2, 3, 4, 5, 6, 7]


def test_lines_that_are_alike_by_their_meaning_are_told_apart_from_others() -> None:
    said = [Meaning(signature="acme", alike=True) for _ in range(3)]
    told = [
        (said[0], "a 1"),
        (said[1], "b 1"),
        (said[0], "a 2"),
        (said[2], "a 3"),
        (said[1], "b 2"),
    ]
    told += [(Meaning(signature="acme"), text) for text in ("b 4", "c 1")]
    timeline = Timeline(
        Event(index=index, meaning=meaning, text=text) for index, (meaning, text) in enumerate(told)
    )
    assert _variants([*range(7)], timeline, of_calls=False) == [[0, 2, 3], [1, 4, 5], [6]]
    assert _variants([0, 2, 3], timeline, of_calls=False) == [[0, 2, 3]]


@pytest.mark.parametrize("texts", [["rank 3 at 0x7f", "rank 41 at 0xab"], ["a\n1", "a 1", "a\n2"]])
def test_texts_are_compared_together_as_each_by_itself(texts: list[str]) -> None:
    each = [_shapes([text])[0] for text in texts]
    assert _shapes(texts) == (each if len(set(each)) > 1 else each[:1])


def test_findings_come_in_order_of_time_and_say_when() -> None:
    job, diagnosis = fixture("torchrun-missing-rank")
    items = fold(job, diagnosis).items
    places = [item.at for item in items if item.at is not None and item.role != "progress"]
    assert places == sorted(places)
    timeout = next(item for item in items if item.signature == "torch.c10d.watchdog-timeout")
    assert (timeout.role, timeout.time, timeout.who) == ("effect", "08:25:12", "ranks 0-4, 6-7")
