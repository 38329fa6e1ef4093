from dataclasses import replace

import diagnose
from diagnose.diagnosis import Diagnosis
from diagnose.report.html import lanes, tables
from diagnose.report.html.clock import prepare
from diagnose.report.html.lanes import MAX_CLASSES, PHASES
from diagnose.report.html.ranks import states
from diagnose.report.safe import scrubber

from .jobs import fixture, pasted, watchdog


def draw(job: diagnose.Job, diagnosis: Diagnosis) -> tuple[lanes.Lanes, dict]:
    events, scrub = prepare(job, diagnosis.onset.time), scrubber(redact=True)
    found = tables.findings(events, job.catalog, scrub)
    last = events.last_attempt
    picture = lanes.lanes(
        events, diagnosis, found, states(last, diagnosis), last.hosts_of_ranks, scrub
    )
    assert picture is not None
    return picture, lanes.to_json(picture, events, diagnosis)


def test_lanes_of_a_hang() -> None:
    picture, data = draw(*fixture("torchrun-missing-rank"))
    assert [lane.label for lane in picture.lanes] == [f"rank {n}" for n in range(8)] + [
        "console.log"
    ]
    onset, message = picture.onset, picture.first_message
    assert onset == 210_853  # 08:11:40.331 to 08:15:11.184
    assert message == 811_669  # 08:25:12
    assert picture.lanes[5].state == "culprit"
    assert picture.lanes[5].wait == (onset, message)
    assert picture.lanes[0].wait == (onset, message)
    assert [bar[2] for bar in picture.lanes[0].bars] == [PHASES.index("training")]
    assert picture.lanes[0].bars[0][1] <= onset  # it does not go on behind the wait
    assert data["blame"] == "never reached the collective"
    assert data["label"][:2] == [0, 1]
    assert not data["classes"]


def test_a_mark_leads_to_its_finding_and_line() -> None:
    job, diagnosis = fixture("torchrun-missing-rank")
    picture, _ = draw(job, diagnosis)
    found = tables.findings(prepare(job, diagnosis.onset.time), job.catalog, scrubber(redact=True))
    marks = picture.lanes[2].marks
    places = [(found.items[f].signature, picture.sources[s], line) for _, f, _, s, line in marks]
    assert ("torch.c10d.watchdog-timeout", "console.log", 48) in places
    assert len({finding for _, finding, *_ in marks}) == len(marks)  # the first of each


def test_many_ranks_fold_into_classes_the_odd_one_first() -> None:
    lines = [f"[rank{rank}]: 2026-06-02 08:15:00,000 INFO step 5 loss 1.0" for rank in range(100)]
    lines += [watchdog(rank) for rank in range(100) if rank != 42]
    picture, data = draw(*pasted("\n".join(lines)))
    assert [(c.label, c.state, c.begin, c.end) for c in picture.classes] == [
        ("rank 42", "culprit", 0, 1),
        ("ranks 0-41, 43-99", "waiting", 1, 100),
    ]
    assert [lane.rank for lane in picture.lanes[:3]] == [42, 0, 1]
    assert [kind["label"] for kind in data["classes"]] == ["rank 42", "ranks 0-41, 43-99"]


def test_classes_get_coarser_until_they_are_few() -> None:
    lines = [
        f"[rank{rank}]: 2026-06-02 08:15:00,000 INFO trainer: step {rank}/1000 loss 1.0"
        for rank in range(200)
    ]
    lines += [watchdog(rank) for rank in range(1, 200)]
    picture, _ = draw(*pasted("\n".join(lines)))
    assert len(picture.classes) <= MAX_CLASSES
    assert picture.classes[-1].step == "1–199"


def test_lanes_are_grouped_by_host() -> None:
    picture, data = draw(*fixture("megatron-tp-blocks-dp"))
    assert [lane.host for lane in picture.lanes[:8]] == ["mg-0"] * 4 + ["mg-1"] * 4
    assert data["hosts"] == ["", "mg-0", "mg-1"]


def test_the_first_view_shows_the_hang_of_a_long_job() -> None:
    lines = ["[rank0]: 2026-06-01 08:00:00,000 INFO trainer: step 1/1000 loss 1.0"]
    lines += [watchdog(rank) for rank in (0, 1, 3)]
    picture, _ = draw(*pasted("\n".join(lines)))
    assert picture.onset is not None
    begin, end = picture.view
    assert picture.onset - 2_500_000 < begin < picture.onset < end
    assert (end - picture.onset) / (end - begin) > 0.2


def test_logs_without_ranks_have_a_lane_each(tmp_path) -> None:
    (tmp_path / "a.log").write_text(
        "2026-06-02 08:00:00,000 ERROR RuntimeError: CUDA out of memory.\n"
    )
    job = diagnose.load(tmp_path)
    picture, _ = draw(job, diagnose.diagnose(job))
    assert [lane.label for lane in picture.lanes] == ["a.log"]


def test_a_log_without_any_time_has_no_lane_beside_the_ranks() -> None:
    job, diagnosis = fixture("k8s-memcg-oom")
    picture, _ = draw(job, diagnosis)
    others = [lane.label for lane in picture.lanes if lane.rank is None]
    assert "dmesg-worker-1-node.txt" in {event.source for event in job.events}
    assert others == ["llm-pretrain-worker-0/0.log", "llm-pretrain-worker-1/0.log"]


def test_nothing_placed_is_no_picture() -> None:
    job, diagnosis = pasted("hello\n")
    events = prepare(job, None)
    empty = replace(events, begin=None, end=None)
    found = tables.findings(events, job.catalog, scrubber(redact=True))
    assert lanes.lanes(empty, diagnosis, found, {}, {}, scrubber(redact=True)) is None
