"""Decisions: by which rule, in which forms, and what became of them."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from diagnose.act.carry_out import carry_out
from diagnose.act.forms import FORMS, document
from diagnose.act.outcome import outcome
from diagnose.act.record import Action, Decision, decide, meant, of_suspects, read
from diagnose.act.webhooks import WEBHOOKS, bodies
from diagnose.catalog.load import load_catalog
from diagnose.diagnosis import Culprits, Diagnosis, JobFacts
from diagnose.errors import InputError
from diagnose.fleet.nodes import Suspect
from tests.fleet.frames import BEGIN, failed, frame, row, typed
from tests.report.samples import FAILED, HEALTHY, HUNG, UNKNOWN

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
GPU = replace(
    FAILED,
    root_cause=replace(FAILED.root_cause, confidence="high"),
    job=JobFacts(hosts=["gpu07", "gpu08"]),
)


def decided(found: Diagnosis) -> Decision:
    return decide(found, load_catalog(), "run-1", "00ff", 7, NOW)


def actions(found: Diagnosis) -> list[tuple[str, list[str]]]:
    return [(one.action, one.targets) for one in decided(found).actions]


def sure(found: Diagnosis, confidence: str) -> Diagnosis:
    return replace(found, root_cause=replace(found.root_cause, confidence=confidence))


def blamed(*hosts: str, of: list[str] | None = None) -> Diagnosis:
    job = JobFacts(hosts=of if of is not None else ["gpu07", "gpu08"])
    return replace(GPU, culprits=Culprits(hosts=[*hosts]), job=job)


def test_a_bad_node_is_drained_at_high_confidence_and_left_out_at_medium() -> None:
    assert actions(GPU) == [("drain", ["gpu07"])]
    assert actions(sure(GPU, "medium")) == [("exclude", ["gpu07"])]
    [one] = decided(GPU).actions
    assert (one.made, one.expires) == ("2026-11-30T12:00:00+00:00", "2026-12-07T12:00:00+00:00")
    assert [(at.source, at.line) for at in one.evidence] == [("dmesg/gpu07.txt", 3)]


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (sure(GPU, "low"), "hw.gpu is of low confidence"),
        (UNKNOWN, "the cause is unknown"),
        (HEALTHY, "nothing went wrong"),
        (replace(HUNG, verdict="running"), "the job works on, and no node is to blame"),
    ],
)
def test_nothing_is_decided_where_little_is_known(found: Diagnosis, why: str) -> None:
    assert decided(found) == Decision([], why)


def test_a_node_that_works_on_is_only_left_out() -> None:
    assert actions(replace(GPU, verdict="running")) == [("exclude", ["gpu07"])]


def test_a_cause_of_the_program_touches_no_node() -> None:
    assert HUNG.culprits.hosts == ["gpu-a"]
    assert actions(HUNG) == [("stop", [])]


def test_most_nodes_of_a_job_are_no_culprits() -> None:
    assert actions(blamed("a", "b", of=["a", "b", "c"])) == [("retry_elsewhere", [])]
    assert actions(blamed("a", "b", of=["a", "b"])) == [("retry_elsewhere", [])]
    assert actions(blamed("a", of=["a"])) == [("drain", ["a"])]


@pytest.mark.parametrize(
    "host", ["$(reboot)", "a;b", "-rf", "gpu[1-900]", "a b", "", "localhost", "ALL,", "ALL"]
)
def test_what_is_no_name_of_a_node_is_never_a_target(host: str) -> None:
    assert actions(blamed(host)) == [("retry_elsewhere", [])]


def test_suspect_nodes_of_a_fleet() -> None:
    def suspect(host: str, p: float) -> Suspect:
        return Suspect(
            host, 50, 7, 0.4, 17.0, p, 0, {"hw.gpu": 5, "net.fabric": 2}, [], None, None, None, None
        )

    found = of_suspects(
        [suspect("n1", 1e-6), suspect("n2", 0.03), suspect("x;y", 1e-9)], "r", 7, NOW
    )
    assert [(one.action, one.targets, one.cause) for one in found.actions] == [
        ("drain", ["n1"], "hw.gpu"), ("exclude", ["n2"], "hw.gpu")
    ]  # fmt: skip
    assert (
        found.actions[0].reason
        == "hw.gpu: blamed in 7 incidents of 50 jobs, 0.4 expected (p 1e-06)"
    )
    assert of_suspects([], "r", 7, NOW).why_none == "no node is suspect"


# --- forms ----------------------------------------------------------------------------------------


def action(*targets: str, name: Any = "drain", **values: Any) -> Action:
    known: dict[str, Any] = {
        "reason": "hw.gpu: it's $(gone) \"off\" the `bus`\nnow", "cause": "hw.gpu",
        "confidence": "high", "evidence": [], "job": "run-1", "fingerprint": "00ff",
        "made": "2026-11-30T12:00:00+00:00", "expires": "2026-12-07T12:00:00+00:00",
    }  # fmt: skip
    return Action(name, [*targets], **known | values)


def test_slurm() -> None:
    text = FORMS["slurm"]([action("n1", "n2"), action("n7", name="exclude")], False)
    comment, more, command, rest = text.splitlines()
    assert "Never in a prolog or epilog" in comment
    assert more.startswith("# ")
    assert shlex.split(command) == [
        "scontrol", "update", "NodeName=n[1-2]", "State=DRAIN",
        "Reason=diagnose 00ff hw.gpu: it s (gone) off the bus now",
    ]  # fmt: skip
    assert rest == "# Not sure enough for a drain: sbatch --exclude=n7"
    assert FORMS["slurm"]([action("n1")], True).splitlines()[-1] == (
        "scontrol update NodeName=n1 State=RESUME"
    )


def test_no_form_has_anything_without_a_node() -> None:
    found = [action(name="stop")]
    assert [FORMS[one](found, False) for one in ("slurm", "exclude", "kubernetes")] == ["", "", ""]
    assert json.loads(FORMS["nvsentinel"](found, False)) == []


def test_exclude() -> None:
    found = [action("n1"), action("n2", name="exclude"), action("x y")]
    assert FORMS["exclude"](found, False) == "--exclude=n[1-2]\n"
    assert FORMS["exclude"](found, True) == FORMS["slurm"](found[1:2], True) == ""


def test_kubernetes() -> None:
    taint, patch = (
        shlex.split(one) for one in FORMS["kubernetes"]([action("n1")], False).splitlines()
    )
    assert taint == [
        "kubectl", "taint", "node", "n1", "diagnose/suspect=hw.gpu:NoSchedule", "--overwrite"
    ]  # fmt: skip
    assert patch[:6] == [
        "kubectl",
        "patch",
        "node",
        "n1",
        "--subresource=status",
        "--type=strategic",
    ]
    [condition] = json.loads(patch[7])["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("DiagnoseSuspect", "True")
    assert (condition["reason"], condition["lastTransitionTime"]) == (
        "HwGpu",
        "2026-11-30T12:00:00Z",
    )
    undone = FORMS["kubernetes"]([action("n1")], True).splitlines()
    assert undone[0] == "kubectl taint node n1 diagnose/suspect-"
    assert '"status":"False"' in undone[1]


def test_health_events() -> None:
    [event] = json.loads(FORMS["nvsentinel"]([action("n1")], False))
    assert (event["nodeName"], event["isFatal"], event["isHealthy"]) == ("n1", True, False)
    assert event["errorCode"] == ["hw.gpu"]
    assert json.loads(FORMS["nvrx"]([action("n1")], False)) == {
        "n1": {"failed_checks": ["diagnose hw.gpu"]}
    }
    assert json.loads(FORMS["nvrx"]([action("n1")], True)) == {"n1": {"failed_checks": []}}


@pytest.mark.parametrize("name", WEBHOOKS)
def test_webhooks_send_a_decision_once(name: str) -> None:
    twice = [action("n1"), action("n1", made="2026-12-01T00:00:00+00:00"), action("n2")]
    lines = bodies(name, twice, False).splitlines()
    assert len(lines) == 2
    assert all(json.loads(line) for line in lines)


def test_webhooks_mention_nobody_and_deduplicate() -> None:
    one = action("n1", reason="<!channel> *bold* &")
    [slack] = [json.loads(line) for line in bodies("webhook:slack", [one], False).splitlines()]
    assert "&lt;!channel&gt;" in slack["blocks"][0]["text"]["text"]
    [event] = [json.loads(line) for line in bodies("webhook:pagerduty", [one], True).splitlines()]
    assert (event["event_action"], event["dedup_key"]) == ("resolve", one.key)
    [issue] = [json.loads(line) for line in bodies("webhook:jira", [one], False).splitlines()]
    assert f"diagnose-{one.key}" in issue["fields"]["labels"]
    assert action("n1").key != action("n2").key
    assert action("n1").key == action("n1", job="other").key


def test_records_come_back() -> None:
    found = [action("n1"), action(name="stop")]
    assert read(document(found)) == found
    for bad in (
        "",
        "[]",
        '{"schema": "x", "actions": []}',
        document(found).replace("drain", "burn"),
        document(found).replace('"n1"', '"--all"'),
        document(found).replace("2026-12-07T12:00:00+00:00", "soon"),
    ):
        with pytest.raises(InputError, match="no records of schema diagnose-action/1"):
            read(bad)


def test_times_of_records_are_utc() -> None:
    text = document([action("n1")]).replace("12:00:00+00:00", "14:00:00+02:00")
    assert read(text) == [action("n1")]


def test_what_has_expired_is_no_longer_meant() -> None:
    new, old = action("n1"), action("n2", expires="2026-11-30T12:00:00+00:00")
    assert meant([new, old], NOW) == Decision([new])
    assert meant([old], NOW) == Decision([], "they have expired")
    assert meant([], NOW) == Decision([], "there is no record in it")


def test_nothing_is_run_in_an_epilog(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_SCRIPT_CONTEXT", "epilog_slurmd")
    with pytest.raises(InputError, match="this is the epilog_slurmd of Slurm"):
        carry_out([["true"]])
    monkeypatch.delenv("SLURM_SCRIPT_CONTEXT")
    carry_out([["true"]])
    with pytest.raises(InputError, match="there is no nosuchprogram here"):
        carry_out([["nosuchprogram", "a"]])


# --- did it help ----------------------------------------------------------------------------------


def at(day: float) -> dict[str, Any]:
    moment = (BEGIN + timedelta(days=day)).isoformat()
    return {"started": moment, "ended": moment}


MADE = {"made": (BEGIN + timedelta(days=1)).isoformat(timespec="seconds"), "fingerprint": "hw.gpu"}
FIRST = failed(
    "run-1", **{"class": "hw.gpu", "labels": {"run": "a"}, "hosts": ["n1", "n2"]}, **at(0)
)


@pytest.mark.parametrize(
    ("later", "state", "why"),
    [
        ([], "open", "no later job says anything of it"),
        ([row("b", labels={"run": "a"}, hosts=["n3"], **at(2))], "helped",
         "the next attempt, b, is healthy"),
        ([failed("b", hosts=["n3", "n4"], **{"class": "hw.gpu"}, **at(2))], "no_help",
         "the same failure came again in 1 job: b"),
        ([failed("b", fingerprint="x", hosts=["n1"], culprit_hosts=["n1"], confidence="high",
                 **{"class": "hw.gpu"}, **at(2)),
          row("c", hosts=["n1"], **at(3))], "still_bad", "blamed again in 1 of 2 later jobs: b"),
        ([failed("b", fingerprint="x", hosts=["n1"], culprit_hosts=["n1"], confidence="high",
                 **at(2))], "node_fine", "not blamed in 1 later job: b"),
        ([row("b", hosts=["n1"], **at(2))], "node_fine", "not blamed in 1 later job: b"),
        ([failed("b", fingerprint="x", labels={"run": "a"}, **at(2))], "open",
         "the next attempt, b, failed for crash.exception"),
        ([row("b", labels={"run": "a"}, **at(0.5))], "open", "no later job says anything of it"),
    ],
)  # fmt: skip
def test_did_it_help(later: list[dict[str, Any]], state: str, why: str) -> None:
    became = outcome(action("n1", **MADE), typed(frame(FIRST, *later)), {"hw.gpu"})
    assert (became.state, became.why) == (state, why)
