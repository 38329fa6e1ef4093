"""What a watch says, word by word."""

from __future__ import annotations

import json

from diagnose.watch.alert import (
    Alert,
    Standing,
    Verdict,
    details,
    line,
    masked,
    title,
    variables,
    words,
)

TOKEN = "hf_" + "aBcDeFgHiJkLmNoPqRsTuVwXyZaBcDeFgH"
NOW = (
    "          do now      diagnose collect --triage, on its nodes and before it is ended, shows "
    "where its ranks are\n"
)
STALL = Alert(
    "stalled",
    "2026-11-02T03:14:15.926+00:00",
    ["logs"],
    number=1,
    since="2026-11-02T03:14:01.000+00:00",
    silent_s=14.9,
    limit_s=12.0,
    heartbeat_s=2.0,
    phase="training",
    step=41,
    first=["rank 3"],
    first_ranks=[3],
    ranks=[
        Standing("rank 3", 3, 40, 16.9, "[rank3]: step 40", 16.9),
        Standing("rank 0", 0, 41, 14.9, "[rank0]: evaluating", 3.2),
    ],
)


def test_a_stall() -> None:
    assert (
        words(STALL)
        == f"""\
03:14:15  No progress since 03:14:01 (15 s)
          activity    training, step 41
          heartbeat   2 s; silence of 12 s is allowed here
          first       rank 3, at step 40
          last line   rank 3, 17 s ago: [rank3]: step 40
          last line   rank 0, 3 s ago: [rank0]: evaluating
{NOW}"""
    )


def test_a_stall_of_which_little_is_known() -> None:
    stall = Alert(
        "stalled", STALL.time, existed=True, silent_s=700.0, limit_s=600.0,
        phase="checkpoint", activity="Saving a checkpoint", trouble="ValueError: x",
    )  # fmt: skip
    assert (
        words(stall)
        == f"""\
03:14:15  No progress, before the watch began (11 min 40 s)
          activity    checkpoint, Saving a checkpoint
          heartbeat   not known yet; silence of 10 min is allowed here
          first       the logs do not show which rank stopped first
          error       ValueError: x
{NOW}"""
    )


def test_one_rank_of_several() -> None:
    lone = Alert(
        "stalled", STALL.time, whole=False, first=["rank 3", "node01"], first_ranks=[3],
        silent_s=5.0, since=STALL.since,
    )  # fmt: skip
    assert title(lone) == "rank 3, node01 stopped while others go on, silent since 03:14:01 (5 s)"


def test_what_comes_after() -> None:
    assert title(Alert("recovered", STALL.time, silent_s=80.0)) == (
        "The job makes progress again (after 1 min 20 s)"
    )
    assert title(Alert("attempt", STALL.time)) == "A new attempt started"


def test_verdicts() -> None:
    found = Verdict(
        "hung", "desync.missing_rank", "A rank never came", "Rank 5 …", "medium", [5], ["n1"]
    )
    assert (
        words(Alert("ended", STALL.time, ["a", "b"], verdict=found))
        == """\
03:14:15  The job ended: HUNG  A rank never came (medium confidence)
          cause       desync.missing_rank: Rank 5 …
          culprits    rank 5, n1
          more        diagnose triage a b
"""
    )
    assert title(Alert("verdict", STALL.time, verdict=found)).startswith("So far: HUNG  ")
    healthy = Alert("ended", STALL.time, ["a"], verdict=Verdict("healthy", "none"))
    assert (title(healthy), details(healthy)) == ("The job ended: healthy", [])
    running = Alert("ended", STALL.time, ["a"], verdict=Verdict("running", "none"))
    assert title(running) == "The job ended: no failure found"
    slow = Verdict("running", "slow.straggler", "Rank 3 is slower than its peers", ranks=[3])
    late = Alert("verdict", STALL.time, verdict=slow)
    assert title(late) == "So far: RUNNING  Rank 3 is slower than its peers (low confidence)"
    assert ("culprits", "rank 3") in details(late)
    broken = Alert("ended", STALL.time, verdict=Verdict(problem="no verdict"))
    assert title(broken) == "The job ended: no verdict"
    assert title(Alert("ended", STALL.time)) == "The job ended"


def test_the_json() -> None:
    told = json.loads(STALL.to_json())
    assert (told["schema"], told["event"], told["first_ranks"]) == (
        "diagnose-watch/1", "stalled", [3],
    )  # fmt: skip
    ended = Alert("ended", STALL.time, verdict=Verdict("hung", "net.socket"))
    assert ended.to_dict()["verdict"]["class"] == "net.socket"
    assert "\n" not in STALL.to_json()


def test_the_variables() -> None:
    found = variables(STALL)
    assert json.loads(found.pop("DIAGNOSE_STALL_JSON")) == STALL.to_dict()
    assert found == {
        "DIAGNOSE_STALL_NUMBER": "1",
        "DIAGNOSE_STALL_RANKS": "3",
        "DIAGNOSE_STALL_PHASE": "training",
        "DIAGNOSE_STALL_SINCE": "2026-11-02T03:14:01.000+00:00",
        "DIAGNOSE_STALL_SECONDS": "15",
        "DIAGNOSE_STALL_LOGS": "logs",
    }


def test_secrets_are_masked() -> None:
    assert TOKEN not in line(f"token {TOKEN} {'x' * 500}")
    told = masked(Alert("stalled", STALL.time, trouble=f"HF_TOKEN={TOKEN} ann@x.org"), people=True)
    assert TOKEN not in told.to_json()
    assert "ann@x.org" not in told.to_json()
    assert line("\x1b[31mred\x07 <b>") == "red <b>"
