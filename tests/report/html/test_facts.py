import diagnose
from diagnose.diagnosis import JobFacts
from diagnose.report.html.tables import job_facts, overview
from diagnose.report.safe import scrubber


def told(text: str) -> dict[str, tuple[bool, list[tuple[str, str]]]]:
    job = diagnose.load_text(text)
    found = job_facts(job.events, job.catalog, scrubber(redact=True))
    return {fact.name: (fact.differs, [(v.text, v.who) for v in fact.values]) for fact in found}


def nccl(rank: int, version: str) -> str:
    return (
        f"[rank{rank}]: node-{rank}:{100 + rank}:{200 + rank} [0] NCCL INFO NCCL version {version}"
    )


def test_a_rank_with_another_version_is_a_difference() -> None:
    found = told("\n".join([nccl(0, "2.26.2"), nccl(1, "2.26.2"), nccl(2, "2.21.5")]))
    assert found["Version of nccl"] == (
        True,
        [("2.26.2", "ranks 0-1"), ("2.21.5", "rank 2")],
    )


def test_the_same_everywhere_is_none() -> None:
    found = told("\n".join([nccl(0, "2.26.2"), nccl(1, "2.26.2")]))
    assert found["Version of nccl"] == (False, [("2.26.2", "ranks 0-1")])


def test_a_rank_that_reports_two_values_disagrees_with_nobody() -> None:
    found = told("\n".join([nccl(0, "2.26.2"), nccl(0, "2.21.5"), nccl(1, "2.26.2")]))
    assert found["Version of nccl"][0] is False


def test_overview() -> None:
    rows = overview(
        JobFacts(8, ["a", "b"], 2, ["torch"], {"torch": "2.7.0"}, [0, 1, 2, 3, 4, 6, 7])
    )
    assert rows == [
        ("Ranks", "8"),
        ("Seen in the logs", "ranks 0-4, 6-7"),
        ("No output from", "rank 5"),
        ("Hosts", "2: a, b"),
        ("Attempts", "2"),
        ("Software", "torch"),
        ("Versions", "torch 2.7.0"),
    ]
    assert overview(JobFacts()) == []
